package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
)

const (
	config = "apiVersion: example.com/v1\nkind: Config\nspec: {a: b}\n"
	script = "#!/bin/sh\necho hello\n"
	cloud  = "#cloud-config\npackages: [jq]\n"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// b64lines is what the base64 command writes.
func b64lines(s string) string {
	var out strings.Builder
	for s = b64(s); len(s) > 76; s = s[76:] {
		out.WriteString(s[:76] + "\n")
	}
	return out.String() + s + "\n"
}

func gz(s string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write([]byte(s))
	z.Close()
	return out.String()
}

func utf16of(s string, order binary.ByteOrder) string {
	var out bytes.Buffer
	binary.Write(&out, order, utf16.Encode([]rune(s)))
	return out.String()
}

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

// message is a multipart of which every element of parts is header and body.
func message(boundary string, parts ...string) string {
	out := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"" + boundary + "\"\n\n"
	for _, p := range parts {
		out += "--" + boundary + "\n" + p + "\n"
	}
	return out + "--" + boundary + "--\n"
}

// show is what a test compares: everything but long data.
func show(parts []Part) string {
	var out strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&out, "%s %q declared=%q", p.Index, p.ContentType, p.Declared)
		if p.Filename != "" {
			fmt.Fprintf(&out, " file=%q", p.Filename)
		}
		if len(p.Encodings) > 0 {
			fmt.Fprintf(&out, " %s", strings.Join(p.Encodings, "+"))
		}
		if p.Problem != nil {
			fmt.Fprintf(&out, " problem: %v\n", p.Problem)
			continue
		}
		fmt.Fprintf(&out, " line=%d %q\n", p.Line, p.Data)
	}
	return out.String()
}

func plain(contentType, encodings string, line int, data string) string {
	return show([]Part{{Index: "1", ContentType: contentType, Encodings: strings.FieldsFunc(encodings, func(r rune) bool { return r == '+' }), Line: line, Data: []byte(data)}})
}

func TestParseWhole(t *testing.T) {
	two := message("B", "Content-Type: application/node.eks.aws\n\n"+config, "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n"+script)
	parts := func(encodings string, lines ...int) string {
		var e []string
		if encodings != "" {
			e = strings.Split(encodings, "+")
		}
		return show([]Part{
			{Index: "1", ContentType: "application/node.eks.aws", Declared: "application/node.eks.aws", Encodings: e, Line: lines[0], Data: []byte(config)},
			{Index: "2", ContentType: "text/x-shellscript", Declared: "text/x-shellscript", Encodings: e, Line: lines[1], Data: []byte(script)},
		})
	}
	for _, test := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"blank", " \t\r\n\n ", ""},
		{"gzip of nothing", gz(""), ""},
		{"only a byte order mark", "\xef\xbb\xbf", ""},

		{"YAML", config, plain("", "", 1, config)},
		{"YAML after blank lines", "\n\n" + config, plain("", "", 1, "\n\n"+config)},
		{"YAML of several documents", "---\n" + config + "---\n" + config, plain("", "", 1, "---\n"+config+"---\n"+config)},
		{"JSON", `{"apiVersion": "v1"}`, plain("", "", 1, `{"apiVersion": "v1"}`)},
		{"script", script, plain("text/x-shellscript", "", 1, script)},
		{"cloud-config", cloud, plain("text/cloud-config", "", 1, cloud)},
		{"boothook", "#cloud-boothook\n", plain("text/cloud-boothook", "", 1, "#cloud-boothook\n")},
		{"include", "#include\nhttps://x\n", plain("text/x-include-url", "", 1, "#include\nhttps://x\n")},
		{"include once", "#include-once\n", plain("text/x-include-once-url", "", 1, "#include-once\n")},
		{"archive", "#cloud-config-archive\n", plain("text/cloud-config-archive", "", 1, "#cloud-config-archive\n")},
		{"jinja", "## template: jinja\n" + cloud, plain("text/jinja2", "", 1, "## template: jinja\n"+cloud)},
		{"prefix in capitals after blanks", "\n #Cloud-Config\n", plain("text/cloud-config", "", 1, "\n #Cloud-Config\n")},
		{"a comment that is no prefix", "#included by x\na: b\n", plain("", "", 1, "#included by x\na: b\n")},
		{"CRLF", crlf(config), plain("", "", 1, config)},
		{"lone CR stays", "a: b\rc", plain("", "", 1, "a: b\rc")},
		{"byte order mark", "\xef\xbb\xbf" + script, plain("text/x-shellscript", "", 1, script)},
		{"UTF-16LE", "\xff\xfe" + utf16of(crlf(script)+"ä𝄞", binary.LittleEndian), plain("text/x-shellscript", "utf-16le", 1, script+"ä𝄞")},
		{"UTF-16BE", "\xfe\xff" + utf16of(config, binary.BigEndian), plain("", "utf-16be", 1, config)},
		{"UTF-16LE without mark", utf16of(config, binary.LittleEndian), plain("", "utf-16le", 1, config)},
		{"UTF-16BE without mark", utf16of(config, binary.BigEndian), plain("", "utf-16be", 1, config)},
		{"binary stays", "\x00\x01\r\n\xff", plain("", "", 1, "\x00\x01\r\n\xff")},

		{"base64", b64(config), plain("", "base64", 0, config)},
		{"base64 in lines", b64lines(strings.Repeat(config, 9)), plain("", "base64", 0, strings.Repeat(config, 9))},
		{"base64 in CRLF lines", crlf(b64lines(strings.Repeat(config, 9))), plain("", "base64", 0, strings.Repeat(config, 9))},
		{"base64 without padding", strings.TrimRight(b64(script), "="), plain("text/x-shellscript", "base64", 0, script)},
		{"base64 of JSON", b64(`{"a": 1}`), plain("", "base64", 0, `{"a": 1}`)},
		{"base64 of a comment and YAML", b64("# ours\n" + config), plain("", "base64", 0, "# ours\n"+config)},
		{"base64 of base64", b64(b64lines(script)), plain("text/x-shellscript", "base64+base64", 0, script)},
		{"base64 of UTF-16", b64(utf16of(config, binary.LittleEndian)), plain("", "base64+utf-16le", 0, config)},
		{"UTF-16 of base64", "\xff\xfe" + utf16of(b64(config), binary.LittleEndian), plain("", "utf-16le+base64", 0, config)},
		{"gzip", gz(script), plain("text/x-shellscript", "gzip", 0, script)},
		{"gzip in members, zeros behind", gz("#!/bin/sh\n") + gz("echo hello\n") + "\x00\n", plain("text/x-shellscript", "gzip", 0, script)},
		{"base64 of gzip", b64(gz(config)), plain("", "base64+gzip", 0, config)},
		{"gzip of base64", gz(b64(config)), plain("", "gzip+base64", 0, config)},
		{"four layers", b64(gz(b64(gz(config)))), plain("", "base64+gzip+base64+gzip", 0, config)},

		{"the word test", "test", plain("", "", 1, "test")},
		{"a hex digest", strings.Repeat("0123456789abcdef", 4), plain("", "", 1, strings.Repeat("0123456789abcdef", 4))},
		{"base64 of anything", b64("just some words"), plain("", "", 1, b64("just some words"))},
		{"base64 of binary", b64("\x01\x02: \xff#!"), plain("", "", 1, b64("\x01\x02: \xff#!"))},

		{"MIME", two, parts("", 7, 14)},
		{"MIME with CRLF", crlf(two), parts("", 7, 14)},
		{"MIME after blank lines", "\n \r\n\t" + two, parts("", 9, 16)},
		{"MIME with byte order mark", "\xef\xbb\xbf" + two, parts("", 7, 14)},
		{"MIME in UTF-16", "\xff\xfe" + utf16of(two, binary.LittleEndian), parts("utf-16le", 7, 14)},
		{"MIME in base64 and gzip", b64(gz(two)), parts("base64+gzip", 0, 0)},
		{"MIME in gzip", gz(two), parts("gzip", 0, 0)},
		{"no line break at the end", strings.TrimSpace(two), parts("", 7, 14)},
		{"closed twice", two + "--B--\n", parts("", 7, 14)},
		{"preamble and epilogue", strings.Replace(two, "\n\n--B", "\n\nTo whom\n--\nit may concern\n--B", 1) + "ciao\n", parts("", 10, 17)},
		{"header at the boundary", strings.Replace(two, "\n\n--B", "\n--B", 1), parts("", 6, 13)},
		{"fields in any case", strings.NewReplacer("MIME-Version", "mime-version", "Content-Type", "CONTENT-type", "multipart", "MultiPart", "boundary", "Boundary", "text/x-shell", "Text/X-Shell").Replace(two), parts("", 7, 14)},
		{"folded fields", strings.ReplaceAll(two, "; ", ";\n  "), parts("", 8, 16)},
		{"boundary without quotes", strings.Replace(two, `"B"`, "B", 1), parts("", 7, 14)},
		{"boundary that needs quotes", strings.ReplaceAll(strings.Replace(two, `"B"`, "==B==", 1), "--B", "--==B=="), parts("", 7, 14)},
		{"blanks behind boundaries", strings.ReplaceAll(two, "--B\n", "--B \t\n"), parts("", 7, 14)},

		{"managed node group", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n" + script + "\n--//--\n",
			"1 \"text/x-shellscript\" declared=\"text/x-shellscript\" problem: ud:6: the header does not end before this line, and this is no field of it\n"},
		{"managed node group with its blank line", "Content-Type: multipart/mixed; boundary=\"//\"\nMIME-Version: 1.0\n\n--//\nContent-Type: application/node.eks.aws\n\n" + config + "\n--//--\n",
			show([]Part{{Index: "1", ContentType: "application/node.eks.aws", Declared: "application/node.eks.aws", Line: 7, Data: []byte(config)}})},
		{"message of one part", "MIME-Version: 1.0\nContent-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n" + b64lines(cloud),
			show([]Part{{Index: "1", ContentType: "text/cloud-config", Declared: "text/cloud-config", Encodings: []string{"base64"}, Data: []byte(cloud)}})},
		{"message without a type", "MIME-Version: 1.0\n\n" + script, show([]Part{{Index: "1", ContentType: "text/x-shellscript", Line: 3, Data: []byte(script)}})},
	} {
		parts, err := Parse([]byte(test.in), "ud")
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, show(parts)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// Each test is one part of a message; its body begins two lines below line 4.
func TestParsePart(t *testing.T) {
	qp := "#!/bin/sh\necho a=3Db =\nc\n"
	for _, test := range []struct{ name, in, want string }{
		{"no header", "\n" + script, `1 "text/x-shellscript" declared="" line=6 ` + quoted(script)},
		{"no type", "X-Note: hi\n\nkind: x", `1 "" declared="" line=7 "kind: x"`},
		{"empty", "Content-Type: text/plain\n\n", `1 "text/plain" declared="text/plain" line=7 ""`},
		{"text/plain by prefix", "Content-Type: Text/Plain\n\n" + cloud, `1 "text/cloud-config" declared="text/plain" line=7 ` + quoted(cloud)},
		{"text/plain of nothing known", "Content-Type: text/plain\n\n" + config, `1 "text/plain" declared="text/plain" line=7 ` + quoted(config)},
		{"a type is kept", "Content-Type: text/cloud-config\n\n" + script, `1 "text/cloud-config" declared="text/cloud-config" line=7 ` + quoted(script)},
		{"file name", "Content-Type: a/b; name=x\nContent-Disposition: attachment; filename=\"y z.sh\"\n\nq", `1 "a/b" declared="a/b" file="y z.sh" line=8 "q"`},
		{"name of the type", "Content-Type: a/b; name=x\n\nq", `1 "a/b" declared="a/b" file="x" line=7 "q"`},
		{"base64", "Content-Type: a/b\nContent-Transfer-Encoding: BASE64\n\n" + b64lines(crlf(script)), `1 "a/b" declared="a/b" base64 line=0 ` + quoted(script)},
		{"base64 of anything, by its header", "Content-Transfer-Encoding: base64\n\n" + b64("just words"), `1 "" declared="" base64 line=0 "just words"`},
		{"base64 and gzip", "Content-Type: a/b\nContent-Transfer-Encoding: base64\n\n" + b64lines(gz(script)), `1 "a/b" declared="a/b" base64+gzip line=0 ` + quoted(script)},
		{"gzip as it is", "Content-Type: a/b\nContent-Transfer-Encoding: binary\n\n" + gz(script), `1 "a/b" declared="a/b" gzip line=0 ` + quoted(script)},
		{"gzip type gives way", "Content-Type: application/x-gzip\nContent-Transfer-Encoding: base64\n\n" + b64(gz(script)), `1 "text/x-shellscript" declared="application/x-gzip" base64+gzip line=0 ` + quoted(script)},
		{"base64 without saying so", "Content-Type: a/b\n\n" + b64lines(config), `1 "a/b" declared="a/b" base64 line=0 ` + quoted(config)},
		{"base64 of base64", "Content-Type: a/b\nContent-Transfer-Encoding: base64\n\n" + b64(b64(config)), `1 "a/b" declared="a/b" base64+base64 line=0 ` + quoted(config)},
		{"quoted-printable", "Content-Type: a/b\nContent-Transfer-Encoding: quoted-printable\n\n" + qp, `1 "a/b" declared="a/b" quoted-printable line=0 "#!/bin/sh\necho a=b c\n"`},
		{"UTF-16", "Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n" + b64("\xff\xfe"+utf16of(script, binary.LittleEndian)), `1 "text/x-shellscript" declared="text/plain" base64+utf-16le line=0 ` + quoted(script)},
		{"7bit", "Content-Type: a/b\nContent-Transfer-Encoding: 7bit\n\nx", `1 "a/b" declared="a/b" line=8 "x"`},
		{"a word", "Content-Type: a/b\n\ntest", `1 "a/b" declared="a/b" line=7 "test"`},
		{"YAML at the boundary", "---\nkind: x\n", `1 "" declared="" line=5 "---\nkind: x\n"`},
		{"a field of anyone", "Importance: high\nContent-Type: a/b\n\nx", `1 "a/b" declared="a/b" line=8 "x"`},
		{"blank line of blanks", "Content-Type: a/b\n  \nx", `1 "a/b" declared="a/b" line=7 "x"`},

		{"malformed type", "Content-Type: text/plain; charset\n\nx", `1 "" declared="text/plain; charset" problem: ud:5: Content-Type "text/plain; charset" is malformed`},
		{"type without subtype", "X-A: b\nContent-Type: text\n\nx", `1 "" declared="text" problem: ud:6: Content-Type "text" is malformed`},
		{"malformed multipart", "Content-Type: multipart/mixed boundary=x\n\nx", `1 "" declared="multipart/mixed boundary=x" problem: ud:5: Content-Type "multipart/mixed boundary=x" is malformed`},
		{"unknown transfer encoding", "Content-Type: a/b\nContent-Transfer-Encoding: uuencode\n\nx", `1 "a/b" declared="a/b" problem: ud:6: Content-Transfer-Encoding "uuencode" is unknown`},
		{"bad base64", "Content-Type: a/b\nContent-Transfer-Encoding: base64\n\nAAAA\nA*AA\n", `1 "a/b" declared="a/b" problem: ud:9: this is not base64, which the part's Content-Transfer-Encoding says it is`},
		{"quoted-printable that ends in a soft break", "Content-Transfer-Encoding: quoted-printable\n\na =\r\nb=", `1 "" declared="" quoted-printable line=0 "a b"`},
		{"bad quoted-printable", "Content-Type: a/b\nContent-Transfer-Encoding: quoted-printable\n\na =ZZ", `1 "a/b" declared="a/b" problem: ud:8: this is not quoted-printable, which the part's Content-Transfer-Encoding says it is`},
		{"gzip cut short", "Content-Type: a/b\nContent-Transfer-Encoding: base64\n\n" + b64(gz(script)[:20]), `1 "a/b" declared="a/b" base64 problem: ud, part 1 (after base64):1: the gzip data is cut short`},
		{"blank line above the header", "\nContent-Type: a/b\n\nx", `1 "a/b" declared="a/b" problem: ud:6: the header of the part stands below a blank line, so it is content`},
		{"no blank line below it", "Content-Type: a/b\n#!/bin/sh\n", `1 "a/b" declared="a/b" problem: ud:6: the header does not end before this line, and this is no field of it`},
		{"YAML taken for fields", "Content-Type: a/b\n" + config, `1 "a/b" declared="a/b" problem: ud:6: the header does not end before this line, and this is no field of it`},
		{"half of the YAML taken for fields", "Content-Type: a/b\nkind: x\nspec:\n  a: b\n\n  c: d\n", `1 "a/b" declared="a/b" problem: ud:7: the header does not end before this line, and this is no field of it`},
		{"indented field", "Content-Type: a/b\n  Content-Transfer-Encoding: base64\n\nAAAA", `1 "a/b" declared="a/b" problem: ud:6: a field of the header is indented, which makes it part of the line above`},
		{"odd UTF-16", "Content-Type: text/plain\n\n\xff\xfea", `1 "text/plain" declared="text/plain" problem: ud:7: the text is not valid utf-16le`},
	} {
		in := message("B", test.in, "Content-Type: text/good\n\nok")
		parts, err := Parse([]byte(in), "ud")
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if len(parts) != 2 || string(parts[1].Data) != "ok" || parts[1].Problem != nil {
			t.Errorf("%s: the part below was spoiled: %s", test.name, show(parts))
			continue
		}
		got := strings.TrimSuffix(show(parts[:1]), "\n")
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if problem := parts[0].Problem; problem != nil && (fault.CodeOf(problem) != fault.Usage || fault.Remedy(problem) == "") {
			t.Errorf("%s: problem without class or remedy: %v", test.name, problem)
		}
	}
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

func TestParseNested(t *testing.T) {
	inner := strings.TrimPrefix(message("IN", "Content-Type: a/b\n\nx: 1", "\n"+script), "MIME-Version: 1.0\n")
	encoded := "Content-Type: multipart/mixed; boundary=IN\nContent-Transfer-Encoding: base64\n\n" + b64lines(inner[strings.Index(inner, "--IN"):])
	parts, err := Parse([]byte(message("OUT", "Content-Type: a/b\n\nfirst", inner, encoded, "Content-Type: a/b\n\nlast")), "ud")
	if err != nil {
		t.Fatal(err)
	}
	want := `1 "a/b" declared="a/b" line=7 "first"
2.1 "a/b" declared="a/b" line=14 "x: 1"
2.2 "text/x-shellscript" declared="" line=17 "#!/bin/sh\necho hello\n"
3.1 "a/b" declared="a/b" base64 line=0 "x: 1"
3.2 "text/x-shellscript" declared="" base64 line=0 "#!/bin/sh\necho hello\n"
4 "a/b" declared="a/b" line=32 "last"
`
	if diff := cmp.Diff(want, show(parts)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	head := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"BOUND\"\n\n"
	part := "Content-Type: a/b\n\nx\n"
	deep := "Content-Type: a/b\n\nx"
	for i := range 9 {
		deep = strings.TrimPrefix(message(fmt.Sprint("D", i), deep), "MIME-Version: 1.0\n")
	}
	for _, test := range []struct{ name, in, want, remedy string }{
		{"no closing boundary", head + "--BOUND\n" + part, `ud:7: the message ends without its closing boundary: it is cut short or the line is missing`, "the message must end with --BOUND--"},
		{"closing boundary mistyped", head + "--BOUND\n" + part + "--BOUND-\n", `ud:8: the message ends without its closing boundary: it is cut short or the line is missing; line 8 has "--BOUND-"`, "end with --BOUND--"},
		{"closing boundary indented", head + "--BOUND\n" + part + "  --BOUND--\n", `is missing; line 8 has "  --BOUND--"`, "end with --BOUND--"},
		{"cut within a part", head + "--BOUND\n" + part + "--BOUND\nContent-Ty", `ud:9: the message ends without`, "end with --BOUND--"},
		{"boundary never appears", head + "--OTHER\n" + part + "--OTHER--\n", `ud:2: the boundary "BOUND" begins no part; line 4 has "--OTHER"`, "begin every part with the line --BOUND and end the message with --BOUND--"},
		{"boundary without dashes", head + "BOUND\n" + part + "BOUND\n", `ud:2: the boundary "BOUND" begins no part; line 4 has "BOUND"`, "--BOUND"},
		{"boundary in another case", head + "--bound\n" + part + "--bound--\n", `begins no part; line 4 has "--bound"`, "--BOUND"},
		{"nothing below the header", head, `ud:2: the boundary "BOUND" begins no part`, "--BOUND"},
		{"no line below the header", strings.TrimSpace(head), `ud:2: the boundary "BOUND" begins no part`, "--BOUND"},
		{"no parts", head + "--BOUND--\n", `ud:4: the message ends before its first part`, "begin every part with the line --BOUND"},
		{"empty boundary", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"\"\n\n--\n--\n----\n", `ud:2: multipart/mixed has no boundary`, `boundary="BOUNDARY"`},
		{"no boundary", "Content-Type: multipart/mixed\n\n--B\n\nx\n--B--\n", `ud:1: multipart/mixed has no boundary`, `boundary="BOUNDARY"`},
		{"first boundary mistyped", head + "--BUOND\n" + part + "--BOUND\n" + part + "--BOUND--\n", `ud:4: "--BUOND" stands outside of the parts and is not the boundary "--BOUND", so what follows it would be lost`, "--BOUND"},
		{"other boundary first", head + "--XYZ\n" + part + "--BOUND\n" + part + "--BOUND--\n", `ud:4: "--XYZ" stands outside`, "--BOUND"},
		{"part behind the end", head + "--BOUND\n" + part + "--BOUND--\n--BOUND\n" + part + "--BOUND--\n", `ud:9: a part begins after the end of the message, which is at line 8`, "put --BOUND-- behind the last part"},
		{"mistyped part behind the end", head + "--BOUND\n" + part + "--BOUND--\n--BOUN\n" + part, `ud:9: "--BOUN" stands outside`, "--BOUND"},
		{"nested one not closed", head + "--BOUND\nContent-Type: multipart/mixed; boundary=IN\n\n--IN\n" + part + "--BOUND--\n", `ud:10: the message ends without its closing boundary`, "end with --IN--"},
		{"nested one without parts", head + "--BOUND\nContent-Type: multipart/mixed; boundary=IN\n\n--BOUND--\n", `ud:5: the boundary "IN" begins no part`, "--IN"},
		{"malformed type", "MIME-Version: 1.0\nContent-Type: multipart/mixed boundary=\"B\"\n\n--B\n\nx\n--B--\n", `ud:2: Content-Type "multipart/mixed boundary=\"B\"" is malformed`, `boundary="BOUNDARY"`},
		{"a line without a colon", "MIME-Version: 1.0\nContent-Type multipart/mixed\n\n", `ud:2: the header does not end before this line`, "Name: value"},
		{"all of it indented", "  MIME-Version: 1.0\n  Content-Type: multipart/mixed; boundary=B\n\n  --B\n", `ud:2: a field of the header is indented`, "<<-EOT"},
		{"comment above the header", "# ours\n\n" + head + "--BOUND\n" + part + "--BOUND--\n", `ud:1: a comment stands before the MIME header`, "remove what stands above"},
		{"header of the message lost", "--BOUND\n" + part + "--BOUND--\n", `ud:1: a part begins here, but the header of the message is missing`, "blank line before the first part"},
		{"base64 of a broken message", b64(head + "--BOUND\n" + part), `ud (after base64):7: the message ends without`, "end with --BOUND--"},
		{"base64 cut short", b64(strings.Repeat(config, 4))[:77], `ud:1: the base64 is damaged or cut short here`, "standard alphabet"},
		{"base64 with a stray byte", b64lines(gz(config + script))[:80] + "*" + b64lines(gz(config + script))[80:], `ud:2: the base64 is damaged or cut short here`, "standard alphabet"},
		{"gzip cut short", gz(config)[:30], `ud:1: the gzip data is cut short`, "keep all of it"},
		{"gzip damaged", gz(config)[:20] + "xx" + gz(config)[22:], `ud:1: the gzip data is`, "keep all of it"},
		{"something behind gzip", gz(config) + "more", `ud:1: something other than gzip follows the gzip data`, "compress it again"},
		{"bomb", gz(strings.Repeat("a", maxGunzip+1)), `ud:1: the gzip data becomes more than the 8388608 bytes`, "smaller"},
		{"five layers", b64(gz(b64(gz(b64(config))))), `more than 4 encodings around each other (base64, gzip, base64, gzip, then base64 again)`, "encode it once"},
		{"odd UTF-16", "\xff\xfea", `ud:1: the text is not valid utf-16le`, "UTF-8"},
		{"lone surrogate", "\xff\xfe" + utf16of("a\nb", binary.LittleEndian) + "\x00\xd8", `the text is not valid utf-16le`, "UTF-8"},
		{"too large", strings.Repeat("a", maxInput+1), `ud: 16777217 bytes are more than`, "16 KiB"},
		{"too many parts", message("B", strings.Split(strings.Repeat("\nx|", maxParts), "|")...), `there are more than 1000 parts`, "fewer"},
		{"too deep", "MIME-Version: 1.0\n" + deep, `multiparts are nested more than 8 deep`, "side by side"},
		{"endless header", "MIME-Version: 1.0\n" + strings.Repeat("X-A: b\n", 20000), `ud:1: the header is longer than 65536 bytes`, "blank line"},
	} {
		parts, err := Parse([]byte(test.in), "ud")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s\n%.300s", test.name, err, test.want, show(parts))
			continue
		}
		if fault.CodeOf(err) != fault.Usage || !strings.Contains(fault.Remedy(err), test.remedy) {
			t.Errorf("%s: code %d, remedy %q, want %q", test.name, fault.CodeOf(err), fault.Remedy(err), test.remedy)
		}
		if parts != nil {
			t.Errorf("%s: parts beside an error", test.name)
		}
	}
}

// Many bombs together are stopped as well as one.
func TestParseManyBombs(t *testing.T) {
	bomb := "Content-Type: a/b\nContent-Transfer-Encoding: base64\n\n" + b64(gz(strings.Repeat("a", maxGunzip)))
	parts, err := Parse([]byte(message("B", strings.Split(strings.Repeat(bomb+"|", 20), "|")...)), "ud")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, p := range parts {
		total += p.Size
	}
	if total > maxUnpacked || parts[0].Problem != nil || parts[19].Problem == nil {
		t.Errorf("%d bytes; first %v, last %v", total, parts[0].Problem, parts[19].Problem)
	}
}

// 16 KiB is the most that EC2 takes, 1 MiB what may be in there compressed.
func TestParseSizes(t *testing.T) {
	for _, size := range []int{16 << 10, 1 << 20} {
		data := strings.Repeat("a: b\n", size/5) + strings.Repeat("#", size%5)
		for name, in := range map[string]string{"plain": data, "base64": b64lines(data), "gzip": gz(data), "MIME": message("B", "Content-Type: a/b\n\n"+data)} {
			parts, err := Parse([]byte(in), "ud")
			if err != nil || len(parts) != 1 || string(parts[0].Data) != data || parts[0].Size != size {
				t.Errorf("%s of %d bytes: %d parts, %v", name, size, len(parts), err)
			}
		}
	}
}

// A caller may use its bytes again.
func TestParseCopies(t *testing.T) {
	in := []byte(message("B", "Content-Type: a/b\n\nx: y"))
	parts, err := Parse(in, "ud")
	clear(in)
	if err != nil || string(parts[0].Data) != "x: y" {
		t.Errorf("%v, %q", err, parts[0].Data)
	}
}
