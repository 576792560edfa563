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
		{"curl --proxy-user alice:p@ssw0rd-1 https://x", "p@ssw0rd-1", "https://x"},
		{"decoded p%40ssw0rd-1 too", "p%40ssw0rd-1", "decoded"},
		{"Nov 21 host x[1]: MHcCAQEEIIGjQ0Z4bXlzZWNyZXRrZXlieXRlc2hlcmUx", "MHcCAQEEII", "Nov 21 host"},
		{"before\n" + strings.ReplaceAll(key, "EC ", "") + "after", "MHcCAQ", "after"},
		{"-----BEGIN RSA PRIVATE KEY-----\nAAAAunknownkey", "AAAAunknownkey", "-----BEGIN RSA PRIVATE KEY-----"},
		{`{"token": "k8s-aws-v1.aHR0cHM6Ly9zdHM"}`, "aHR0cHM6Ly9zdHM", "token"},
		{"https://sts/?X-Amz-Date=20260101T000000Z&X-Amz-Security-Token=IQoJb3&X-Amz-Signature=0123ab", "IQoJb3", "X-Amz-Date=20260101T000000Z"},
		{"Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "eyJzdWIi", "Authorization"},
		{"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "wJalrXUtnFEMI", "AWS_SECRET_ACCESS_KEY="},
		{`"password": "top secretpart"`, "secretpart", `"password"`},
		{`"password": "top secretpart"`, "top", `"password"`},
		{"db_password: 'x9-y8'", "x9-y8", "db_password"},
		{`"auth": "QVdTOnBhc3M="`, "QVdTOnBhc3M", `"auth"`},
		{"    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVk", "LS0tLS1CRUdJ", "client-key-data"},
		{"AAAAhalfakeyAAAA\n-----END RSA PRIVATE KEY-----\nafter", "AAAAhalfakey", "after"},
		{`Environment="CFG={\"password\":\"pa55inside\"}"`, "pa55inside", "CFG"},
		{"ExecStart=/x --password pa55flag --other y", "pa55flag", "--other y"},
		{"ExecStart=/x --proxy-user a:pa55flag", "pa55flag", "/x"},
		{"aws configure set aws_secret_access_key wJalrX/UtnFEMI", "UtnFEMI", "configure"},
		{"password: |\n  blockpa55\n  second\nnext: 1", "blockpa55", "next: 1"},
		{"password: |\n  blockpa55\n  second\nnext: 1", "second", "next: 1"},
		{`auth = "QVdTOnBhc3M="`, "QVdTOnBhc3M", "auth"},
		{"DB_PASS=x7y8z9 next", "x7y8z9", "next"}, {"MYSQL_PWD=x7y8z9", "x7y8z9", "MYSQL"},
		{"password: 'pw,withComma9'", "withComma9", "password"}, {"DB_PASSWORD=abc;defSecret", "defSecret", "DB"},
		{"http://u:hun/ter22@proxy:1", "ter22", "@proxy:1"}, {"http://u:a@bsecret@proxy:1", "bsecret", "@proxy:1"},
		{"HTTPS_PROXY=u:pwpw@proxy:1", "pwpw", "@proxy:1"}, {"curl -u alice:pwpw https://x", "pwpw", "https://x"},
		{"https%3A%2F%2Fu%3Apwpw%40host", "pwpw", "%40host"}, {"X-Amz-Security-Token%3DIQoJ", "IQoJ", "X-Amz"},
		{".dockerconfigjson: eyJhdXRocyI6e30=", "eyJhdXRo", "dockerconfigjson"}, {"ghp_0123456789abcdefABCDEF", "0123456789abcdef", "ghp_"},
		{"https://hooks.slack.com/services/T000/B000/XXXX", "B000", "hooks.slack.com"}, {"Signature=0123456789abcdef0123", "0123456789", "Signature="},
		{"DB_PASSWORD=12345678", "12345678", "DB_PASSWORD"}, {"AWS_SECRET_ACCESS_KEY=/abcSecret", "abcSecret", "AWS_SECRET"},
		{"the token is abcdef123456", "abcdef123456", "the token is"},
	} {
		got := string(r.redact([]byte(test.text)))
		if strings.Contains(got, test.secret) || !strings.Contains(got, test.stays) {
			t.Errorf("%q became %q", test.text, got)
		}
	}
	learned := newRedactor([][]byte{[]byte("chpasswd:\n  list: |\n    root:ch4ngeme\ncurl --proxy-user a:fl4gpass x\npassword: |\n  bl0ckpass\nDB_PASSWORD=87654321\nHTTP_TOKENS=required\nx: http://u:sl/4sh@p\nAWS_SECRET_ACCESS_KEY=/sl4shkey")})
	for _, secret := range []string{"ch4ngeme", "fl4gpass", "bl0ckpass", "87654321", "sl/4sh", "/sl4shkey"} {
		if got := string(learned.redact([]byte("somewhere else: x " + secret + " y"))); strings.Contains(got, secret) {
			t.Errorf("%q was not learned: %q", secret, got)
		}
	}
	if got := string(learned.redact([]byte("network is required"))); got != "network is required" {
		t.Errorf("%q", got)
	}
	for _, text := range []string{
		`"token-lifetime": 900,`, "nodeadm[48]: debug PUT \"/latest/api/token\" 200 OK in 153µs", "image: 111.dkr.ecr.eu-west-1.amazonaws.com/app@sha256:0123",
		"automountServiceAccountToken: false", "server: https://0123.gr7.eu-west-1.eks.amazonaws.com", "--cluster-name my-cluster --region eu-west-1",
		"kubelet.service: Main process exited, code=exited, status=1/FAILURE", "certificate-authority: /etc/kubernetes/pki/ca.crt",
		`"image-credential-provider-config": "/etc/eks/image-credential-provider/config.json"`, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
	} {
		if got := string(r.redact([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
