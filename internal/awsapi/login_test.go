package awsapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/awsapi"
	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/internal/simulator"
)

const (
	privateImage  = "111122223333.dkr.ecr.us-west-2.amazonaws.com/app"
	publicImage   = "public.ecr.aws/eks/coredns"
	privateAction = "ecr:GetAuthorizationToken"
	publicAction  = "ecr-public:GetAuthorizationToken"
)

func registry(t *testing.T, image string) awsapi.Registry {
	t.Helper()
	r, err := awsapi.RegistryOf(image)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The instance is in another region than the image, and the role's real secret
// is what the simulator takes.
func TestLogIn(t *testing.T) {
	s, o := start(t, world())
	c := awsapi.New(withRole(o))
	for image, action := range map[string]string{privateImage: privateAction, publicImage: publicAction} {
		login, err := c.LogIn(soon(t), registry(t, image))
		if err != nil || login.Username != "AWS" || login.Password != simulator.RegistryPassword("111111111111") {
			t.Errorf("%s: %+v, %v", image, login, err)
		}
		if left := time.Until(login.Expires); left < 12*time.Hour-time.Minute || left > 12*time.Hour {
			t.Errorf("%s: for %s", image, left)
		}
		if n := count(s, action); n != 1 {
			t.Errorf("%s: asked %d times", image, n)
		}
	}
}

// The other partitions have no part in ECR Public, and need none.
func TestPublicWithoutLogin(t *testing.T) {
	for _, region := range []string{"cn-north-1", "us-gov-west-1", "us-iso-east-1", "eusc-de-east-1"} {
		w := simulator.World{Instance: simulator.Instance{Type: "m5.large", Region: region, Role: "NodeInstanceRole"}}
		s, o := start(t, w)
		if login, err := awsapi.New(withRole(o)).LogIn(soon(t), registry(t, publicImage)); err != nil || login != (awsapi.RegistryLogin{}) {
			t.Errorf("%s: %+v, %v", region, login, err)
		}
		if n := len(s.Requests()); n != 0 {
			t.Errorf("%s: %d requests", region, n)
		}
	}
}

func TestLogInPartitions(t *testing.T) {
	for region, domain := range map[string]string{"cn-north-1": "amazonaws.com.cn", "us-gov-west-1": "amazonaws.com", "us-iso-east-1": "c2s.ic.gov", "eusc-de-east-1": "amazonaws.eu"} {
		_, o := start(t, simulator.World{Instance: simulator.Instance{Type: "m5.large", Region: region, Role: "NodeInstanceRole"}})
		if login, err := awsapi.New(withRole(o)).LogIn(soon(t), registry(t, "111122223333.dkr.ecr."+region+"."+domain+"/app")); err != nil || login.Password == "" {
			t.Errorf("%s: %+v, %v", region, login, err)
		}
		// Its credentials are none elsewhere.
		if _, err := awsapi.New(withRole(o)).LogIn(soon(t), registry(t, privateImage)); err == nil || !strings.Contains(err.Error(), "UnrecognizedClientException") {
			t.Errorf("%s asks in us-west-2: %v", region, err)
		}
	}
}

func TestLogInIsRefused(t *testing.T) {
	// What AWS says of a signature that does not fit has the session token in it.
	talkative := `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"The request signature we calculated does not match.\n\nThe Canonical String was\n'x-amz-security-token:simulated-session-token'"}`
	for _, test := range []struct {
		name, image     string
		change          func(*simulator.World)
		denied          bool
		message, remedy string
	}{
		{"denied", privateImage, func(w *simulator.World) { w.Permissions.Deny = []string{privateAction} }, true,
			privateAction + ": AccessDeniedException: User: arn:", `"Action": "ecr:GetAuthorizationToken"`},
		{"public denied", publicImage, func(w *simulator.World) { w.Permissions.Deny = []string{"ecr-public:*"} }, true,
			publicAction + ": AccessDeniedException", `"Action": ["ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"]`},
		{"a proxy's no", privateImage, func(w *simulator.World) {
			w.Faults = []simulator.Fault{{Match: privateAction, Status: 403, Body: "<html>no</html>"}}
		}, true, "no code: 403 Forbidden", "ecr:GetAuthorizationToken"},
		{"signature", privateImage, func(w *simulator.World) {
			w.Faults = []simulator.Fault{{Match: privateAction, Status: 400, Body: talkative}}
		}, false, "InvalidSignatureException: The request signature we calculated does not match.", "clock"},
		{"expired credentials", privateImage, func(w *simulator.World) {
			w.Faults = []simulator.Fault{{Match: "ecr:*", Status: 400, Code: "ExpiredTokenException"}}
		}, false, "ExpiredTokenException", "AWS does not know these credentials"},
		{"parameters", privateImage, func(w *simulator.World) {
			w.Faults = []simulator.Fault{{Match: privateAction, Status: 400, Code: "InvalidParameterException"}}
		}, false, "InvalidParameterException", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := world()
			test.change(&w)
			s, o := start(t, w)
			_, err := awsapi.New(withRole(o)).LogIn(soon(t), registry(t, test.image))
			if fault.CodeOf(err) != fault.AWS || !strings.Contains(err.Error(), test.message) || errors.Is(err, awsapi.ErrDenied) != test.denied {
				t.Fatalf("class %d: %v", fault.CodeOf(err), err)
			}
			if !strings.Contains(fault.Remedy(err), test.remedy) {
				t.Errorf("remedy %q", fault.Remedy(err))
			}
			if strings.Contains(err.Error()+fault.Remedy(err), "simulated-session-token") {
				t.Errorf("the session token is in %v", err)
			}
			if n := count(s, privateAction) + count(s, publicAction); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
	_, o := start(t, world())
	if _, err := awsapi.New(o).LogIn(soon(t), registry(t, privateImage)); err == nil || !strings.Contains(err.Error(), "UnrecognizedClientException") {
		t.Errorf("with somebody else's credentials: %v", err)
	}
}

func TestLogInIsTriedAgain(t *testing.T) {
	for _, f := range []simulator.Fault{
		{Status: 400, Code: "ThrottlingException"}, {Status: 429}, {Status: 503, Body: "<html>busy</html>"}, {Status: 500, Code: "ServerException"}, {Drop: true}, {Body: "{}"},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			f.Match, f.First = privateAction, 1
			s, o := start(t, world(f))
			if login, err := awsapi.New(withRole(o)).LogIn(soon(t), registry(t, privateImage)); err != nil || login.Password == "" {
				t.Errorf("%+v: %v", f, err)
			}
			if n := count(s, privateAction); n != 2 {
				t.Errorf("%+v: asked %d times", f, n)
			}
		})
	}
}
