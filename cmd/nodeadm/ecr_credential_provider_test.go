package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

const privateImage = "111122223333.dkr.ecr.us-west-2.amazonaws.com/team/app"

func imageQuestion(version, image string) string {
	return fmt.Sprintf(`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/%s","image":"%s","serviceAccountToken":"","fieldOfTomorrow":{}}`+"\n", version, image)
}

// provider runs the command against a simulated instance, all of whose AWS APIs
// are at endpoint.
func provider(t *testing.T, endpoint, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	t.Setenv("AWS_ENDPOINT_URL_ECR", endpoint)
	t.Setenv("AWS_ENDPOINT_URL_ECR_PUBLIC", endpoint)
	return fed(t, stdin, append([]string{"/usr/bin/nodeadm", "ecr-credential-provider", "--imds-endpoint", endpoint}, args...)...)
}

func TestImageCredentials(t *testing.T) {
	endpoint := serveWorld(t, nil)
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		for _, image := range []string{privateImage, "111122223333.dkr-ecr-fips.us-east-1.on.aws/app", "public.ecr.aws/eks/coredns", "ecr-public.aws.com/eks/coredns"} {
			out, errs, code := provider(t, endpoint, imageQuestion(version, image))
			var answer imageResponse
			if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || errs != "" {
				t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
			}
			host, _, _ := strings.Cut(image, "/")
			want := imageResponse{"credentialprovider.kubelet.k8s.io/" + version, "CredentialProviderResponse", "Registry", "6h0m0s",
				map[string]registryAuth{host: {"AWS", simulator.RegistryPassword("111111111111")}}}
			if diff := cmp.Diff(want, answer); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", version, image, diff)
			}
		}
	}
}

func TestImageCredentialsWithoutLogin(t *testing.T) {
	china := serveWorld(t, func(w *simulator.World) {
		*w = simulator.World{Instance: simulator.Instance{Type: "m5.large", Region: "cn-north-1"}}
	})
	const want = `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry","cacheDuration":"5m0s","auth":{}}` + "\n"
	if out, errs, code := provider(t, china, imageQuestion("v1", "public.ecr.aws/eks/coredns")); out != want || errs != "" || code != 0 {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	// The environment's region saves the question.
	t.Setenv("AWS_REGION", "us-gov-west-1")
	if out, errs, code := provider(t, "http://127.0.0.1:1", imageQuestion("v1", "public.ecr.aws/eks/coredns")); out != want || errs != "" || code != 0 {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestImageCredentialsQuestions(t *testing.T) {
	for _, test := range []struct{ name, stdin, says string }{
		{"nothing", "", "standard input: a CredentialProviderRequest in JSON is expected"},
		{"no JSON", "image: x", "a CredentialProviderRequest in JSON is expected"},
		{"half", `{"kind":"CredentialProviderRequest"`, "a CredentialProviderRequest in JSON is expected"},
		{"two", imageQuestion("v1", privateImage) + "{}", "a CredentialProviderRequest in JSON is expected"},
		{"list", "[]", "a CredentialProviderRequest in JSON is expected"},
		{"endless", strings.Repeat(" ", maxImageRequest+1), "more than 1 MiB"},
		{"kind", `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}`, `kind "ExecCredential", and CredentialProviderRequest is expected`},
		{"version", imageQuestion("v2", privateImage), `apiVersion "credentialprovider.kubelet.k8s.io/v2", and one of credentialprovider.kubelet.k8s.io/v1, `},
		{"no version", `{"kind":"CredentialProviderRequest","image":"x"}`, `apiVersion "", and one of`},
		{"no image", imageQuestion("v1", ""), "names no image"},
		{"another registry", imageQuestion("v1", "docker.io/library/nginx"), `image "docker.io/library/nginx": its registry "docker.io" is not one of ECR's`},
		{"an attack", imageQuestion("v1", "111122223333.dkr.ecr.eu-west-1.amazonaws.com.example.com/a"), "is not one of ECR's"},
	} {
		if out, errs, code := provider(t, "http://127.0.0.1:1", test.stdin); code != 2 || out != "" || !strings.Contains(errs, test.says) || !strings.Contains(errs, "fix: ") {
			t.Errorf("%s: exit %d: %s%s", test.name, code, out, errs)
		}
	}
	for says, args := range map[string][]string{"unexpected word": {"word"}, "leaves no time": {"--timeout", "0s"}, "is not a URL": {"--imds-endpoint", "x"}} {
		if out, errs, code := provider(t, "http://127.0.0.1:1", imageQuestion("v1", privateImage), args...); code != 2 || out != "" || !strings.Contains(errs, says) {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
}

func TestImageCredentialsRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*simulator.World)
		image  string
		code   int
		says   []string
	}{
		{"throttled at first", func(w *simulator.World) {
			w.Faults = []simulator.Fault{{Match: "ecr:*", Status: 400, Code: "ThrottlingException", First: 1}}
		}, privateImage, 0, []string{"warn", "ThrottlingException"}},
		{"throttled for good", func(w *simulator.World) {
			w.Faults = []simulator.Fault{{Match: "ecr:*", Status: 400, Code: "ThrottlingException"}}
		}, privateImage, 3, []string{"gave up after", "ecr:GetAuthorizationToken: ThrottlingException"}},
		{"denied", func(w *simulator.World) { w.Permissions.Deny = []string{"ecr:GetAuthorizationToken"} }, privateImage, 3,
			[]string{"AccessDeniedException", `fix: allow it in a policy of the node's role: {"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"}`}},
		{"public denied", func(w *simulator.World) { w.Permissions.Deny = []string{"ecr-public:GetAuthorizationToken"} }, "public.ecr.aws/a/b", 3,
			[]string{"AccessDeniedException", `["ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"]`}},
		{"no role", func(w *simulator.World) { w.Instance.Role = "" }, privateImage, 3, []string{"ecr:GetAuthorizationToken: credentials of the instance's role"}},
		{"no answer", func(w *simulator.World) { w.Faults = []simulator.Fault{{Match: "ecr:*", Hang: true}} }, privateImage, 3, []string{"gave up after", "check that the node can reach the AWS APIs"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, errs, code := provider(t, serveWorld(t, test.change), imageQuestion("v1", test.image), "--timeout", "2s")
			if code != test.code || (out == "") != (code != 0) {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			for _, says := range test.says {
				if !strings.Contains(errs, says) {
					t.Errorf("no %q in %s", says, errs)
				}
			}
			for _, secret := range []string{"simulated-s", "registry-password"} {
				if strings.Contains(errs, secret) {
					t.Errorf("%s in %s", secret, errs)
				}
			}
		})
	}
}

func TestImageCredentialsWrongClock(t *testing.T) {
	for _, off := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		endpoint, stop, err := simulator.New(simulator.Default(), simulator.WithClock(func() time.Time { return time.Now().Add(off) })).Start("")
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if out, errs, code := provider(t, endpoint, imageQuestion("v1", privateImage)); code != 3 || out != "" || !strings.Contains(errs, "check the clock of this machine") {
			t.Errorf("%s: exit %d: %s%s", off, code, out, errs)
		}
	}
	// A login that is over already is not kept.
	over := `{"authorizationData":[{"authorizationToken":"QVdTOnB3","expiresAt":1.5E9}]}`
	endpoint := serveWorld(t, func(w *simulator.World) {
		w.Faults = []simulator.Fault{{Match: "ecr:GetAuthorizationToken", Body: over}}
	})
	if out, errs, code := provider(t, endpoint, imageQuestion("v1", privateImage)); code != 0 || !strings.Contains(out, `"cacheDuration":"0s"`) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// Proxies are those of the environment, as for everything else that kubelet runs.
func TestImageCredentialsThroughProxy(t *testing.T) {
	endpoint := serveWorld(t, nil)
	t.Setenv("HTTP_PROXY", endpoint) // the simulator goes by the path alone
	t.Setenv("NO_PROXY", "")
	t.Setenv("AWS_ENDPOINT_URL_ECR", "http://ecr.example")
	out, errs, code := fed(t, imageQuestion("v1", privateImage), "nodeadm", "ecr-credential-provider", "--imds-endpoint", endpoint)
	if code != 0 || !strings.Contains(out, "registry-password") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestImageRequestNeverComes: somebody who runs it by hand gets an answer.
func TestImageRequestNeverComes(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := readImageRequest(ctx, in); err == nil || !strings.Contains(err.Error(), "no CredentialProviderRequest came") || fault.Remedy(err) == "" {
		t.Error(err)
	}
}
