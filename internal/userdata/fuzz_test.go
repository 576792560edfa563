package userdata

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

var update = flag.Bool("update", false, "write the seeds of the fuzz corpus")

// seeds are documents as people write them, whole and broken.
func seeds() map[string]string {
	two := message("==B==", "Content-Type: application/node.eks.aws\n\n"+config, "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n"+script)
	nested := message("OUT", strings.TrimPrefix(message("IN", "Content-Type: text/cloud-config\n\n"+cloud), "MIME-Version: 1.0\n"), "\n"+script)
	return map[string]string{
		"yaml":              config,
		"json":              `{"apiVersion": "example.com/v1", "kind": "Config"}`,
		"script_crlf":       crlf(script),
		"utf16":             "\xff\xfe" + utf16of(config, binary.LittleEndian),
		"base64_gzip":       b64lines(gz(config)),
		"gzip":              gz(cloud),
		"mime":              two,
		"mime_crlf_base64":  b64(crlf(two)),
		"mime_nested":       nested,
		"mime_part_base64":  message("B", "Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n"+b64lines(gz(script))),
		"mime_part_quoted":  message("B", "Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\na=3Db=\nc"),
		"managed_nodegroup": message("//", "Content-Type: application/node.eks.aws\n\n"+config),
		"not_closed":        strings.TrimSuffix(two, "--==B==--\n"),
		"other_boundary":    strings.Replace(two, `"==B=="`, "==C==", 1),
		"malformed_part":    message("B", "Content-Type: text/plain; charset\n\nx", "Content-Type: a/b\n"+config, "\nContent-Type: a/b\n\nx"),
		"indented":          "\n  MIME-Version: 1.0\n  Content-Type: multipart/mixed; boundary=B\n\n  --B\n",
	}
}

// The corpus is committed, so that fuzzing starts from real shapes everywhere.
func TestSeeds(t *testing.T) {
	dir := filepath.Join("testdata", "fuzz", "FuzzParse")
	for name, seed := range seeds() {
		path := filepath.Join(dir, name)
		want := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", seed)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || len(got) == 0 {
			t.Errorf("%s: %v; run with -update", path, err)
		}
	}
}

var index = regexp.MustCompile(`^[1-9][0-9]*(\.[1-9][0-9]*)*$`)

func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		parts, err := Parse(data, "ud")
		if !bytes.Equal(before, data) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if parts != nil {
				t.Fatal("parts beside an error")
			}
			checkFault(t, err)
			return
		}
		lines, seen, total := bytes.Count(data, []byte("\n"))+1, map[string]bool{}, 0
		if len(parts) > maxParts {
			t.Fatalf("%d parts", len(parts))
		}
		for _, p := range parts {
			if seen[p.Index] || !index.MatchString(p.Index) || strings.Count(p.Index, ".") >= maxDepth {
				t.Fatalf("index %q", p.Index)
			}
			seen[p.Index] = true
			total += p.Size
			switch {
			case p.Size != len(p.Data):
				t.Fatalf("part %s: size %d of %d bytes", p.Index, p.Size, len(p.Data))
			case p.Problem != nil && (p.Data != nil || p.Line != 0):
				t.Fatalf("part %s: data beside a problem", p.Index)
			case p.Problem == nil && p.ContentType == "" && p.Declared != "":
				t.Fatalf("part %s: the declared type %q was lost", p.Index, p.Declared)
			case p.Problem == nil && p.Line > lines+1:
				t.Fatalf("part %s: line %d of %d", p.Index, p.Line, lines)
			case utf8.Valid(p.Data) && bytes.IndexByte(p.Data, 0) < 0 && bytes.Contains(p.Data, []byte("\r\n")) && !bytes.Contains(p.Data, []byte("\r\r")) && !bytes.Contains(data, []byte("\r\r\n")) && len(p.Encodings) == 0:
				t.Fatalf("part %s: CRLF is left", p.Index)
			}
			if p.Problem != nil {
				checkFault(t, p.Problem)
			}
		}
		if total > 2*len(data)+maxUnpacked {
			t.Fatalf("%d bytes became %d", len(data), total)
		}
	})
}

var position = regexp.MustCompile(`(?s)^ud(, part [0-9.]+)?( \(after [a-z0-9, -]+\))?:[1-9][0-9]*: .`)

func checkFault(t *testing.T, err error) {
	t.Helper()
	if fault.CodeOf(err) != fault.Usage || fault.Remedy(err) == "" || !position.MatchString(err.Error()) {
		t.Fatalf("%v: code %d, remedy %q", err, fault.CodeOf(err), fault.Remedy(err))
	}
}
