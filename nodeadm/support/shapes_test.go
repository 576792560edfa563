package support

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A private key of nobody.
const (
	keyBody = "MHcCAQEEIIGjQ0Z4bXlzZWNyZXRrZXlieXRlc2hlcmUxoAoGCCqGSM49AwEHoUQD\nQgAEq83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8SNFZ4kKvN7xI0\nVniQqw==\n"
	pemKey  = "-----BEGIN EC PRIVATE KEY-----\n" + keyBody + "-----END EC PRIVATE KEY-----\n"
)

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func zipped(text string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write([]byte(text))
	w.Close()
	return out.String()
}

// wrapped is a text in lines, as base64 writes it.
func wrapped(text, indent string) (lines string) {
	for len(text) > 76 {
		lines, text = lines+indent+text[:76]+"\n", text[76:]
	}
	return lines + indent + text + "\n"
}

// What is never said of a secret: any of these words.
var planted = []string{"PLANTED", "P1anted", "lanted2"}

func TestShapes(t *testing.T) {
	ecr := "eyJwYXlsb2Fk" + strings.Repeat("PLANTEDx", 30)
	for _, test := range []struct{ text, stays string }{
		{"docker login -u bob -p PLANTED1 registry.example", "registry.example"},
		{"+ docker login --username bob -p 'PLANTED 1 P1anted' registry.example", "registry.example"},
		{"sshpass -p PLANTED1 ssh -p 22 host", "ssh -p 22 host"},
		{"sshpass -pPLANTED1 ssh host", "ssh host"},
		{"mysql -uroot -pPLANTED1 -h db", "-h db"},
		{"mysqldump -pPLANTED1 db", "mysqldump"},
		{"echo PLANTED1 | docker login --username AWS --password-stdin 1.dkr.ecr", "--password-stdin 1.dkr.ecr"},
		{"echo -n 'PLANTED1 P1anted' | passwd --stdin root", "root"},
		{"+ echo PLANTED1\n+ docker login --username AWS --password-stdin 1.dkr.ecr\n", "1.dkr.ecr"},
		{"+ docker login --username AWS --password-stdin 1.dkr.ecr\n+ echo PLANTED1\nnext", "next"},
		{"Nov 21 h c[1]: + echo PLANTED1\nNov 21 h c[1]: + docker login --password-stdin x", "Nov 21 h c[1]: + docker"},
		{"env:\n- name: DB_PASSWORD\n  value: PLANTED1 P1anted\n- name: B\n  value: stays", "value: stays"},
		{"  - name: \"DB_PASSWORD\"\n    value: \"PLANTED1 \\\" P1anted\"\nnext", "next"},
		{`[{"name":"API_TOKEN","value":"PLANTED1"},{"name":"A","value":"stays"}]`, `"value":"stays"`},
		{`msg="{\"name\":\"API_TOKEN\",\"value\":\"PLANTED1\"}"`, "API_TOKEN"},
		{`{"password":"abc\"PLANTED1","image":"stays"}`, `"image":"stays"`},
		{`msg="{\"password\":\"abc\\\"PLANTED1\",\"image\":\"stays\"}"`, `\"image\":\"stays\"`},
		{"password: correct horse PLANTED1\nnext: stays", "next: stays"},
		{"- db_password: correct PLANTED1", "db_password"},
		{`Environment="DB_PASSWORD=a PLANTED1" "B=stays"`, `"B=stays"`},
		{`Environment="DB_PASSWORD=a\"b PLANTED1"`, "Environment"},
		{`+ export 'DB_PASSWORD=a PLANTED1'`, "+ export"},
		{`+ DB_PASSWORD='a'\''PLANTED1' x`, " x"},
		{`DB_PASSWORD=$'a\'PLANTED1' x`, " x"},
		{`DB_PASSWORD=a\$PLANTED1 x`, " x"},
		{`{"password": "PLANTED1 of a line that was cut`, "password"},
		{"[host.\"https://m\".header]\n  X-Corp-Auth = [\"PLANTED1\"]\n  Cookie = [\n    \"P1anted\"\n  ]\n\n[host.\"https://n\"]\n  skip_verify = true", "skip_verify = true"},
		{"header = {X-Corp = \"PLANTED1\"}\nnext", "next"},
		{`X-Corp-Auth = ["PLANTED1"]`, "X-Corp-Auth"},
		{"curl -H 'X-Vault-Auth: PLANTED1' https://x", "https://x"},
		{ecr, ""},
		{"Authorization: token PLANTED1", "Authorization"},
		{"Authorization: PLANTED1PLANTED1PLANTED1", "Authorization"},
		{`{"Name":"/a","Type":"SecureString","Value":"PLANTED1","Version":3}`, `"Version":3`},
		{"{\n  \"Value\": \"PLANTED1\",\n  \"Type\": \"SecureString\"\n}", `"Type": "SecureString"`},
		{"<password>PLANTED1</password><image>stays</image>", "<image>stays</image>"},
		{"machine x login y password PLANTED1\nnext", "machine x login y"},
		{"machine x\n  login y\n  password PLANTED1\n", "machine x"},
		{`"passwords":["PLANTED1","P1anted"],"a":["stays"]`, `"a":["stays"]`},
		{"\"tokens\": [\n  \"PLANTED1\"\n]", "tokens"},
		{"tokens:\n  - PLANTED1\n  - P1anted\nnext: stays", "next: stays"},
		{"token: |-\n\n  PLANTED1\n\n  P1anted\nnext: stays", "next: stays"},
		{"x --token \"a PLANTED1\" --y stays", "--y stays"}, {"Authorization: token [PLANTED1", "Authorization"},
		{"license_key=PLANTED1", "license_key"}, {"subscription-manager register --activationkey PLANTED1", "register"},
		{"encryption_key: PLANTED1", "encryption_key"}, {"signing-key=PLANTED1", "signing-key"}, {"psk=PLANTED1", "psk"}, {"wpa_psk: PLANTED1", "wpa_psk"},
		{"auth = 'PLANTED1'", "auth"},
		{"x hvs.PLANTEDPLANTEDPLANTED y", "y"}, {"x glrt-PLANTEDPLANTED y", "y"}, {"x glpat-PLANTEDPLANTED y", "y"}, {"x ghp_PLANTEDPLANTEDPLANTED y", "y"},
		{"x AIzaPLANTEDPLANTEDPLANTEDPLANTEDPLANTEDx y", "y"}, {"x SG.PLANTEDPLANTED.PLANTEDPLANTED y", "y"}, {"x xoxb-1234-PLANTEDPLANTED y", "y"}, {"x xoxp-1234-PLANTEDPLANTED y", "y"},
		{"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\nPLANTEDPLANTEDPLANTEDPLANTED\nPLANTED=\n=P1an\n-----END PGP PRIVATE KEY BLOCK-----\nafter", "after"},
	} {
		got := string(newRedactor(nil).redact([]byte(test.text)))
		for _, word := range planted {
			if strings.Contains(got, word) || !strings.Contains(got, test.stays) {
				t.Errorf("%q became %q", test.text, got)
			}
		}
	}
}

func TestPrivateKeys(t *testing.T) {
	prefix := func(text string) string {
		return "Nov 21 12:00:00 ip-10-0-0-1 c[1]: " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\nNov 21 12:00:00 ip-10-0-0-1 c[1]: ") + "\n"
	}
	begin, rest, _ := strings.Cut(pemKey, "\n")
	for name, text := range map[string]string{
		"plain": pemKey, "in a log": prefix(pemKey), "in one line": strings.ReplaceAll(pemKey, "\n", `\n`) + "\n", "carriage returns": strings.ReplaceAll(pemKey, "\n", "\r\n"),
		"no end": begin + "\n" + keyBody, "no end in a log": prefix(begin + "\n" + keyBody[:130]), "no beginning": rest, "no beginning in a log": prefix(rest),
		"encrypted": begin + "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\n" + rest, "encrypted, no end": begin + "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\n" + keyBody,
		"base64": "+ echo " + encode(pemKey) + "\n", "base64 in lines": wrapped(encode(pemKey), "    "),
	} {
		got := string(newRedactor(nil).redact([]byte("before it all\n" + text + "what is after it\nand more\n")))
		for _, secret := range []string{"MHcCAQ", "QgAEq83", "VniQqw", "LS0tLS1CRUdJTi", encode(pemKey)[80:100]} {
			if strings.Contains(got, secret) {
				t.Errorf("%s: %q", name, got)
			}
		}
		if !strings.HasPrefix(got, "before it all\n") || !strings.HasSuffix(got, "what is after it\nand more\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestLearn(t *testing.T) {
	config := "#cloud-config\nwrite_files:\n- path: /etc/x\n  encoding: b64\n  content: "
	nested := encode("export A=1\nDB_PASSWORD=PLANTED1\n# " + strings.Repeat("x ", 20))
	for _, test := range []struct{ document, text, secret string }{
		{config + encode(pemKey), "Nov 21 c[1]: " + strings.Split(keyBody, "\n")[0], "MHcCAQ"},
		{config + encode(zipped(pemKey)), strings.Split(keyBody, "\n")[1], "QgAEq83"},
		{config + encode(zipped(pemKey)), "+ echo " + encode(zipped(pemKey)), "H4sI"},
		{config + "|\n" + wrapped(encode(pemKey), "    "), strings.Split(keyBody, "\n")[1], "QgAEq83"},
		{"echo " + encode(pemKey) + " | base64 -d >/etc/tls.key", "+ echo " + encode(pemKey), "LS0tLS1"},
		{config + nested, "found PLANTED1 there", "PLANTED1"}, {config + nested, nested, nested},
		{config + encode("content: "+encode(zipped(pemKey))), strings.Split(keyBody, "\n")[1], "QgAEq83"},
		{"PROXY_PASSWORD=PLANTED1; export PROXY_PASSWORD", "with PLANTED1 in", "PLANTED1"},
		{"PASSWORD=PLANTED1&& true", "with PLANTED1 in", "PLANTED1"}, {"(PASSWORD=PLANTED1)", "with PLANTED1 in", "PLANTED1"}, {"PASSWORD=PLANTED1|x", "with PLANTED1 in", "PLANTED1"},
		{"users: [{name: root, password: PLANTED1, type: text}]", "with PLANTED1 in", "PLANTED1"}, {"{password: PLANTED1}", "with PLANTED1 in", "PLANTED1"},
		{"echo PLANTED1 | docker login --password-stdin", "with PLANTED1 in", "PLANTED1"}, {"docker login -p PLANTED1; x", "with PLANTED1 in", "PLANTED1"},
		{"password: correct horse PLANTED1", "with correct horse PLANTED1 in", "PLANTED1"}, {`{"password":"abc\"PLANTED1"}`, `with abc"PLANTED1 in`, "PLANTED1"},
		{"tokens:\n- PLANTED1\n", "with PLANTED1 in", "PLANTED1"}, {"[host.x.header]\n  X-A = [\"PLANTED1\"]\n", "with PLANTED1 in", "PLANTED1"},
		{"- name: DB_PASSWORD\n  value: PLANTED1\n", "with PLANTED1 in", "PLANTED1"},
		{"username: bob\npassword: PLANTED1", "x: " + encode("bob:PLANTED1"), encode("bob:PLANTED1")},
	} {
		got := string(newRedactor([][]byte{[]byte(test.document)}).redact([]byte(test.text)))
		if strings.Contains(got, test.secret) {
			t.Errorf("of %q: %q", test.document, got)
		}
	}
	bomb := encode(zipped(encode(zipped(strings.Repeat("x", 16<<20)))))
	l := learner{room: maxUnpacked}
	l.learn(bomb, maxDepth)
	if l.room < 0 {
		t.Errorf("%d bytes too many were unpacked", -l.room)
	}
}

func TestReadable(t *testing.T) {
	certificate := "-----BEGIN CERTIFICATE-----\n" + keyBody + "-----END CERTIFICATE-----\n"
	r := newRedactor([][]byte{[]byte("certificateAuthority: " + encode(certificate) + "\npassword: PLANTED1\nTOKEN=$(curl -X PUT http://169.254.169.254/latest/api/token)\nSECRET=$OTHER_NAME")})
	for _, text := range []string{
		certificate, "    certificate-authority-data: " + encode(certificate), wrapped(encode(certificate), ""),
		`"credentialProvider": "ecr-credential-provider"`, "git clone ssh://git@host/repository.git", "credentialProvider: ecr-credential-provider",
		"kubelet --node-labels=a=b,topology.kubernetes.io/zone=eu-west-1a --max-pods 110 --cloud-provider external", "--node-ip 10.0.0.1 -p 22",
		"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "image: 602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/pause:3.10",
		"i-0123456789abcdef0 ami-0123456789abcdef0 subnet-0123456789abcdef0", "arn:aws:iam::111122223333:role/eks-node", "provider: aws:///eu-west-1a/i-0123456789abcdef0",
		`"token-lifetime": 900,`, "X-aws-ec2-metadata-token-ttl-seconds: 21600", "+ curl -X PUT x; $(curl y) $OTHER_NAME", "env:\n- name: A\n  value: b\n",
		"[host.\"https://mirror\"]\n  capabilities = [\"pull\", \"resolve\"]", "systemd-logind[1]: New session 1 of user root -p x.", "+ echo done\n+ docker ps",
		"imagePullSecrets:\n- name: regcred\ncontainers: x", "credentialProviders:\n- name: ecr-credential-provider\n  matchImages: [a]\n",
		"apiVersion: credentialprovider.kubelet.k8s.io/v1", "EnvironmentFile=/etc/eks/kubelet/environment", "keyboard: us\nmonkey=see",
	} {
		if got := string(r.redact([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	log := "-----BEGIN RSA PRIVATE KEY-----\nthe key was not there\nline two\n" + strings.Repeat("kubelet: started\n", 50)
	if got := string(r.redact([]byte(log))); got != strings.Replace(log, "KEY-----", "KEY-----"+redacted, 1) && got != log {
		t.Errorf("%q", got)
	}
}

func FuzzRedact(f *testing.F) {
	const document = "password: hunter22\nDB_TOKEN='s3cr3t/t0ken' x\nurl: https://bob:b0bspass@host\n" + pemKey
	r := newRedactor([][]byte{[]byte(document)})
	for _, seed := range []string{
		document, encode(document), wrapped(encode(document), "  "), pemKey + keyBody + pemKey, "password: |\n  a\n  b\ntokens:\n- a\n- b\n", `{"passwords":["a","b"],"auth":"c","password":"d\"e"}`,
		"[x.header]\n a = b\n", "+ echo x\n+ docker login -p y --password-stdin\n+ echo z", `Environment="A_TOKEN=a b" 'B_PASS=c' $'d' C_PASS=$'e\'f'`, "https://a:b@c https://d@e proxy=f:g@h bearer abcdefghijk",
		"- name: A_KEY\n  secret_key: x\n- name: API_KEY\n  value: y z\n", "machine a login b password c\n<password>d</password>", "password='a''b' \"password=c", "-----END PRIVATE KEY-----",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := string(r.redact([]byte(text)))
		for _, secret := range []string{"hunter22", "s3cr3t/t0ken", "b0bspass", "MHcCAQEEIIGjQ0Z4bXlzZWNyZXRrZXlieXRlc2hlcmUx"} {
			if strings.Contains(once, secret) {
				t.Errorf("%q became %q", text, once)
			}
		}
		if twice := string(r.redact([]byte(once))); twice != once {
			t.Errorf("%q became %q, and that %q", text, once, twice)
		}
	})
}

// sample is a log as kubelet writes it.
func sample(size int) []byte {
	var log bytes.Buffer
	for i := 0; log.Len() < size; i++ {
		fmt.Fprintf(&log, "Nov 21 12:00:%02d.%06d ip-10-0-0-1 kubelet[%d]: I1121 reconciler.go:%d] \"VerifyControllerAttachedVolume started\" pod=\"kube-system/aws-node-%d\" token: a%d image https://x/y@sha256:%064x\n", i%60, i, i, i, i, i, i)
	}
	return log.Bytes()
}

func BenchmarkRedact(b *testing.B) {
	log, r := sample(8<<20), newRedactor([][]byte{[]byte("password: hunter22\n" + pemKey)})
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		r.redact(log)
	}
}

// Four times the log must not take sixteen times as long.
func TestLinear(t *testing.T) {
	r := newRedactor([][]byte{[]byte("password: hunter22")})
	took := func(size int) time.Duration {
		log, best := sample(size), time.Hour
		for range 3 {
			start := time.Now()
			r.redact(log)
			best = min(best, time.Since(start))
		}
		return best
	}
	if small, large := took(1<<15), took(1<<18); large > 32*small { // 64 times would be the square
		t.Errorf("%v for a log, %v for one eight times as long", small, large)
	}
}
