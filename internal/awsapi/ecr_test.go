package awsapi

import (
	"encoding/base64"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

// Where the API for each registry is: as such, with UseFIPS, with UseDualStack,
// and with both.
var registries = []struct{ host, region, plain, fips, dualStack, both string }{
	{"111122223333.dkr.ecr.eu-west-1.amazonaws.com", "eu-west-1",
		"api.ecr.eu-west-1.amazonaws.com", "api.ecr.eu-west-1.amazonaws.com", "ecr.eu-west-1.api.aws", "ecr.eu-west-1.api.aws"},
	{"111122223333.dkr.ecr.us-east-1.amazonaws.com", "us-east-1",
		"api.ecr.us-east-1.amazonaws.com", "ecr-fips.us-east-1.amazonaws.com", "ecr.us-east-1.api.aws", "ecr-fips.us-east-1.api.aws"},
	{"111122223333.dkr.ecr-fips.us-east-2.amazonaws.com", "us-east-2",
		"ecr-fips.us-east-2.amazonaws.com", "ecr-fips.us-east-2.amazonaws.com", "ecr-fips.us-east-2.api.aws", "ecr-fips.us-east-2.api.aws"},
	{"111122223333.dkr-ecr.us-west-2.on.aws", "us-west-2",
		"ecr.us-west-2.api.aws", "ecr-fips.us-west-2.api.aws", "ecr.us-west-2.api.aws", "ecr-fips.us-west-2.api.aws"},
	{"111122223333.dkr-ecr-fips.us-west-1.on.aws", "us-west-1",
		"ecr-fips.us-west-1.api.aws", "ecr-fips.us-west-1.api.aws", "ecr-fips.us-west-1.api.aws", "ecr-fips.us-west-1.api.aws"},
	{"111122223333.dkr.ecr.us-gov-west-1.amazonaws.com", "us-gov-west-1",
		"api.ecr.us-gov-west-1.amazonaws.com", "ecr-fips.us-gov-west-1.amazonaws.com", "ecr.us-gov-west-1.api.aws", "ecr-fips.us-gov-west-1.api.aws"},
	{"111122223333.dkr.ecr-fips.us-gov-east-1.amazonaws.com", "us-gov-east-1",
		"ecr-fips.us-gov-east-1.amazonaws.com", "ecr-fips.us-gov-east-1.amazonaws.com", "ecr-fips.us-gov-east-1.api.aws", "ecr-fips.us-gov-east-1.api.aws"},
	{"111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn", "cn-north-1",
		"api.ecr.cn-north-1.amazonaws.com.cn", "api.ecr.cn-north-1.amazonaws.com.cn", "ecr.cn-north-1.api.amazonwebservices.com.cn", "ecr.cn-north-1.api.amazonwebservices.com.cn"},
	{"111122223333.dkr-ecr.cn-northwest-1.on.amazonwebservices.com.cn", "cn-northwest-1",
		"ecr.cn-northwest-1.api.amazonwebservices.com.cn", "ecr.cn-northwest-1.api.amazonwebservices.com.cn", "ecr.cn-northwest-1.api.amazonwebservices.com.cn", "ecr.cn-northwest-1.api.amazonwebservices.com.cn"},
	{"111122223333.dkr.ecr.us-iso-east-1.c2s.ic.gov", "us-iso-east-1",
		"api.ecr.us-iso-east-1.c2s.ic.gov", "api.ecr.us-iso-east-1.c2s.ic.gov", "ecr.us-iso-east-1.api.aws.ic.gov", "ecr.us-iso-east-1.api.aws.ic.gov"},
	{"111122223333.dkr-ecr.us-iso-east-1.on.aws.ic.gov", "us-iso-east-1",
		"ecr.us-iso-east-1.api.aws.ic.gov", "ecr.us-iso-east-1.api.aws.ic.gov", "ecr.us-iso-east-1.api.aws.ic.gov", "ecr.us-iso-east-1.api.aws.ic.gov"},
	{"111122223333.dkr.ecr.us-isob-east-1.sc2s.sgov.gov", "us-isob-east-1",
		"api.ecr.us-isob-east-1.sc2s.sgov.gov", "api.ecr.us-isob-east-1.sc2s.sgov.gov", "ecr.us-isob-east-1.api.aws.scloud", "ecr.us-isob-east-1.api.aws.scloud"},
	{"111122223333.dkr-ecr.us-isob-east-1.on.aws.scloud", "us-isob-east-1",
		"ecr.us-isob-east-1.api.aws.scloud", "ecr.us-isob-east-1.api.aws.scloud", "ecr.us-isob-east-1.api.aws.scloud", "ecr.us-isob-east-1.api.aws.scloud"},
	{"111122223333.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk", "eu-isoe-west-1",
		"api.ecr.eu-isoe-west-1.cloud.adc-e.uk", "api.ecr.eu-isoe-west-1.cloud.adc-e.uk", "ecr.eu-isoe-west-1.api.cloud-aws.adc-e.uk", "ecr.eu-isoe-west-1.api.cloud-aws.adc-e.uk"},
	{"111122223333.dkr-ecr.eu-isoe-west-1.on.cloud-aws.adc-e.uk", "eu-isoe-west-1",
		"ecr.eu-isoe-west-1.api.cloud-aws.adc-e.uk", "ecr.eu-isoe-west-1.api.cloud-aws.adc-e.uk", "ecr.eu-isoe-west-1.api.cloud-aws.adc-e.uk", "ecr.eu-isoe-west-1.api.cloud-aws.adc-e.uk"},
	{"111122223333.dkr.ecr.us-isof-south-1.csp.hci.ic.gov", "us-isof-south-1",
		"api.ecr.us-isof-south-1.csp.hci.ic.gov", "api.ecr.us-isof-south-1.csp.hci.ic.gov", "ecr.us-isof-south-1.api.aws.hci.ic.gov", "ecr.us-isof-south-1.api.aws.hci.ic.gov"},
	{"111122223333.dkr-ecr.us-isof-south-1.on.aws.hci.ic.gov", "us-isof-south-1",
		"ecr.us-isof-south-1.api.aws.hci.ic.gov", "ecr.us-isof-south-1.api.aws.hci.ic.gov", "ecr.us-isof-south-1.api.aws.hci.ic.gov", "ecr.us-isof-south-1.api.aws.hci.ic.gov"},
	{"111122223333.dkr.ecr.eusc-de-east-1.amazonaws.eu", "eusc-de-east-1",
		"api.ecr.eusc-de-east-1.amazonaws.eu", "api.ecr.eusc-de-east-1.amazonaws.eu", "ecr.eusc-de-east-1.api.amazonwebservices.eu", "ecr.eusc-de-east-1.api.amazonwebservices.eu"},
	{"111122223333.dkr-ecr.eusc-de-east-1.on.amazonwebservices.eu", "eusc-de-east-1",
		"ecr.eusc-de-east-1.api.amazonwebservices.eu", "ecr.eusc-de-east-1.api.amazonwebservices.eu", "ecr.eusc-de-east-1.api.amazonwebservices.eu", "ecr.eusc-de-east-1.api.amazonwebservices.eu"},
	{"public.ecr.aws", "",
		"api.ecr-public.us-east-1.amazonaws.com", "api.ecr-public.us-east-1.amazonaws.com", "ecr-public.us-east-1.api.aws", "ecr-public.us-east-1.api.aws"},
	{"ecr-public.aws.com", "",
		"ecr-public.us-east-1.api.aws", "ecr-public.us-east-1.api.aws", "ecr-public.us-east-1.api.aws", "ecr-public.us-east-1.api.aws"},
}

func TestRegistryEndpoints(t *testing.T) {
	matched := map[string]bool{}
	for _, test := range registries {
		r, err := RegistryOf(test.host + "/team/app:v1")
		if err != nil || r.Host != test.host || r.region != test.region || r.Public() != (test.region == "") {
			t.Errorf("%s: %+v, %v", test.host, r, err)
			continue
		}
		for i, want := range []string{test.plain, test.fips, test.dualStack, test.both} {
			o := Options{UseFIPS: i&1 > 0, UseDualStack: i&2 > 0}
			if got := New(o).ecrEndpoint(r); got != "https://"+want {
				t.Errorf("%s with FIPS %t and dual stack %t: %s, want %s", test.host, o.UseFIPS, o.UseDualStack, got, want)
			}
		}
		// kubelet compares label by label.
		for _, pattern := range RegistryPatterns() {
			if ok, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(test.host, ".", "/")); ok && err == nil {
				matched[pattern] = true
			}
		}
	}
	for _, pattern := range RegistryPatterns() {
		if !matched[pattern] {
			t.Errorf("no registry here has a host such as %s", pattern)
		}
	}
	o := Options{UseFIPS: true, Endpoints: map[string]string{"ECR": "https://ecr.example/", "ECR PUBLIC": "https://public.example"}}
	for image, want := range map[string]string{"111122223333.dkr.ecr-fips.us-east-1.amazonaws.com/a": "https://ecr.example", "public.ecr.aws/a": "https://public.example"} {
		r, err := RegistryOf(image)
		if got := New(o).ecrEndpoint(r); got != want || err != nil {
			t.Errorf("given for %s: %s, %v", image, got, err)
		}
	}
}

// Whatever is taken for a registry's host becomes a part of the host that a
// signed request goes to.
func TestOtherRegistries(t *testing.T) {
	for _, image := range []string{
		"docker.io/library/nginx", "nginx", "/", "registry.k8s.io/pause:3.10", "public.ecr.aws.example.com/a", "gallery.ecr.aws/a", "https://public.ecr.aws/a",
		"111122223333.dkr.ecr.eu-west-1.amazonaws.com:443/a",         // kubelet's patterns do not match it either
		"111122223333.dkr.ecr.eu-west-1.amazonaws.com.example.com/a", // somebody else's
		"111122223333.dkr.ecr.eu-west-1.amazonaws.com@example.com/a",
		"111122223333.dkr.ecr.example.com/x.amazonaws.com",
		"111122223333.dkr.ecr..amazonaws.com/a", "111122223333.dkr.ecr.amazonaws.com/a", "111122223333.dkr.ecr.a.eu-west-1.amazonaws.com/a",
		"111122223333.dkr.ecr.eu-west-1#.amazonaws.com/a", "111122223333.dkr.ecr.EU-WEST-1.amazonaws.com/a", "111122223333.DKR.ECR.eu-west-1.amazonaws.com/a",
		"11112222333.dkr.ecr.eu-west-1.amazonaws.com/a", "1111222233334.dkr.ecr.eu-west-1.amazonaws.com/a", "11112222333x.dkr.ecr.eu-west-1.amazonaws.com/a",
		"111122223333.dkr.ecr.cn-north-1.amazonaws.com/a", "111122223333.dkr.ecr.eu-west-1.amazonaws.com.cn/a", // another partition's region
		"111122223333.dkr-ecr.eu-west-1.amazonaws.com/a", "111122223333.dkr.ecr.eu-west-1.on.aws/a", // half dual-stack
		"111122223333.dkr.ecr-fips.cn-north-1.amazonaws.com.cn/a", "111122223333.dkr-ecr.us-iso-east-1.on./a", // there are none
		"111122223333.dkr.ecr-public.us-east-1.amazonaws.com/a", "api.ecr.eu-west-1.amazonaws.com/a",
	} {
		host, _, _ := strings.Cut(image, "/")
		_, err := RegistryOf(image)
		if fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), fmt.Sprintf("%q is not one of ECR's", host)) || !strings.Contains(fault.Remedy(err), ".dkr.ecr.") {
			t.Errorf("%s: %v, remedy %q", image, err, fault.Remedy(err))
		}
	}
}

func TestReadLogin(t *testing.T) {
	token := base64.StdEncoding.EncodeToString([]byte("AWS:pass:word"))
	for _, test := range []struct {
		name, body string
		public     bool
		want       int64 // milliseconds of Unix time; 0: no login
	}{
		{"private", `{"authorizationData":[{"authorizationToken":"` + token + `","expiresAt":1442962093.322,"proxyEndpoint":"https://x"}]}`, false, 1442962093322},
		{"public", `{"authorizationData":{"authorizationToken":"` + token + `","expiresAt":1442962093}}`, true, 1442962093000},
		{"exponent", `{"authorizationData":[{"authorizationToken":"` + token + `","expiresAt":1.442962093322E9}]}`, false, 1442962093322},
		{"no list for private", `{"authorizationData":{"authorizationToken":"` + token + `"}}`, false, 0},
		{"a list for public", `{"authorizationData":[]}`, true, 0},
		{"none", `{"authorizationData":[]}`, false, 0},
		{"empty", `{}`, true, 0},
		{"no password", `{"authorizationData":{"authorizationToken":"` + base64.StdEncoding.EncodeToString([]byte("AWS")) + `"}}`, true, 0},
		{"no base64", `{"authorizationData":{"authorizationToken":"secret!"}}`, true, 0},
		{"HTML", `<html>secret</html>`, false, 0},
	} {
		login, err := readLogin([]byte(test.body), test.public)
		if test.want == 0 {
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", test.name, err)
			}
		} else if err != nil || login.Username != "AWS" || login.Password != "pass:word" || !login.Expires.Equal(time.UnixMilli(test.want)) {
			t.Errorf("%s: %+v, %v", test.name, login, err)
		}
	}
}
