package support

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	const key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIGjQ0Z4bXlzZWNyZXRrZXlieXRlc2hlcmUx\nAAAABBBBCCCCDDDDEEEEFFFF\n-----END EC PRIVATE KEY-----\n"
	r := newRedactor([][]byte{[]byte("proxy: http://alice:p%40ssw0rd-1@proxy:3128\nREGISTRY_TOKEN: abcdef123456\n" + key)})
	for _, test := range []struct{ text, secret, stays string }{
		{"https_proxy=http://bob:hunter22@proxy:3128/", "hunter22", "@proxy:3128/"},
		{"curl --proxy-user alice:p@ssw0rd-1", "p@ssw0rd-1", "alice"},
		{"decoded p%40ssw0rd-1 too", "p%40ssw0rd-1", "decoded"},
		{"Nov 21 host x[1]: MHcCAQEEIIGjQ0Z4bXlzZWNyZXRrZXlieXRlc2hlcmUx", "MHcCAQEEII", "Nov 21 host"},
		{"before\n" + strings.ReplaceAll(key, "EC ", "") + "after", "MHcCAQ", "after"},
		{"-----BEGIN RSA PRIVATE KEY-----\nAAAAunknownkey", "AAAAunknownkey", "-----BEGIN RSA PRIVATE KEY-----"},
		{`{"token": "k8s-aws-v1.aHR0cHM6Ly9zdHM"}`, "aHR0cHM6Ly9zdHM", "token"},
		{"https://sts/?X-Amz-Date=20260101T000000Z&X-Amz-Security-Token=IQoJb3&X-Amz-Signature=0123ab", "IQoJb3", "X-Amz-Date=20260101T000000Z"},
		{"Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "eyJzdWIi", "Authorization"},
		{"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "wJalrXUtnFEMI", "AWS_SECRET_ACCESS_KEY="},
		{`"password": "top secret"`, "top", `"password"`},
		{"db_password: 'x9-y8'", "x9-y8", "db_password"},
		{`"auth": "QVdTOnBhc3M="`, "QVdTOnBhc3M", `"auth"`},
		{"the token is abcdef123456", "abcdef123456", "the token is"},
	} {
		got := string(r.redact([]byte(test.text)))
		if strings.Contains(got, test.secret) || !strings.Contains(got, test.stays) {
			t.Errorf("%q became %q", test.text, got)
		}
	}
	for _, text := range []string{
		"automountServiceAccountToken: false", "server: https://0123.gr7.eu-west-1.eks.amazonaws.com", "--cluster-name my-cluster --region eu-west-1",
		"kubelet.service: Main process exited, code=exited, status=1/FAILURE", "certificate-authority: /etc/kubernetes/pki/ca.crt",
		`"image-credential-provider-config": "/etc/eks/image-credential-provider/config.json"`, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
	} {
		if got := string(r.redact([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
