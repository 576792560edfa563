// Package examples checks the user data in this folder as nodeadm config check
// does, and that the commands which the guides tell are there.
package examples

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/eks-bootstrap/nodeadm/data/kubelet"
	"github.com/eks-bootstrap/nodeadm/nodeadm/config"
	"github.com/eks-bootstrap/nodeadm/nodeadm/plan"
)

const (
	clusterName    = "my-cluster"
	kubeletVersion = "1.34.4"
	component      = "image-builder/component.yaml"
)

// wholes tells for user data that somebody else's is put to where all of it
// stands, as the instance gets it.
var wholes = map[string]string{
	"karpenter/al2023.yaml":              "karpenter/al2023-merged.txt",
	"eksctl/al2023.yaml":                 "eksctl/al2023-merged.txt",
	"terraform/eks-module.tf script":     "terraform/eks-module-script.sh",
	"terraform/eks-module.tf nodeconfig": "terraform/eks-module-nodeconfig.txt",
}

// without are the files that hold no user data themselves.
var without = []string{"README.md", "examples_test.go", component, "terraform/launch-template.tf"}

// terraform is what Terraform would put in place of ${…}.
var terraform = map[string]string{
	"name":                  clusterName,
	"cluster_name":          clusterName,
	"endpoint":              "https://0123456789ABCDEF0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com",
	"certificate_authority": "", // of user-data/nodeconfig.yaml; see render
	"service_cidr":          "10.100.0.0/16",

	"data.aws_eks_cluster.inline.name":                                           "${name}",
	"data.aws_eks_cluster.inline.endpoint":                                       "${endpoint}",
	"data.aws_eks_cluster.inline.certificate_authority[0].data":                  "${certificate_authority}",
	"data.aws_eks_cluster.inline.kubernetes_network_config[0].service_ipv4_cidr": "${service_cidr}",
}

func files(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			paths = append(paths, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// userData is the user data in a file, by the file's name and what tells one
// from another there.
func userData(t *testing.T, path string) map[string]string {
	t.Helper()
	text := read(t, path)
	found := map[string]string{}
	switch ext := filepath.Ext(path); {
	case slices.Contains(without, path):
	case ext == ".tftpl":
		found[path] = render(t, text)
	case ext == ".tf":
		for name, document := range heredocs(text) {
			found[strings.TrimSpace(path+" "+name)] = render(t, document)
		}
	case ext == ".yaml" && !strings.Contains(text, "\napiVersion: node.eks.aws/") && !strings.HasPrefix(text, "apiVersion: node.eks.aws/"):
		var root yaml.Node
		if err := yaml.Unmarshal([]byte(text), &root); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, document := range embedded(&root) {
			found[path] = document
		}
	default:
		found[path] = text
	}
	return found
}

// embedded finds the text under the keys that tools have for user data.
func embedded(n *yaml.Node) (found []string) {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && child.Kind == yaml.ScalarNode &&
			slices.Contains([]string{"userData", "overrideBootstrapCommand", "Fn::Base64"}, n.Content[i-1].Value) {
			found = append(found, child.Value)
		}
		found = append(found, embedded(child)...)
	}
	return found
}

var (
	heredocBegin = regexp.MustCompile(`<<-([A-Z]+)$`)
	groupBegin   = regexp.MustCompile(`^    ([a-z]+) += \{$`)
)

// heredocs extracts what stands between <<-WORD at the end of a line and a line
// with WORD alone, without the common indentation, which is how HCL reads it.
// Those of one node group (four spaces, NAME = {) belong together under its name.
func heredocs(text string) map[string]string {
	found, group, word := map[string]string{}, "", ""
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case word != "" && strings.TrimSpace(line) == word:
			found[group] += dedent(lines)
			lines, word = nil, ""
		case word != "":
			lines = append(lines, line)
		case heredocBegin.MatchString(line):
			word = heredocBegin.FindStringSubmatch(line)[1]
		case groupBegin.MatchString(line):
			group = groupBegin.FindStringSubmatch(line)[1]
		}
	}
	return found
}

func dedent(lines []string) string {
	indent := -1
	for _, line := range lines {
		if own := len(line) - len(strings.TrimLeft(line, " ")); strings.TrimSpace(line) != "" && (indent < 0 || own < indent) {
			indent = own
		}
	}
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(line[min(max(indent, 0), len(line)):] + "\n")
	}
	return text.String()
}

var placeholder = regexp.MustCompile(`\$\{([^}]+)\}`)

// render puts values in place of Terraform's ${…}.
func render(t *testing.T, text string) string {
	t.Helper()
	return placeholder.ReplaceAllStringFunc(text, func(match string) string {
		name := placeholder.FindStringSubmatch(match)[1]
		value, known := terraform[name]
		if !known {
			t.Errorf("%s is not known: add it to this test", match)
		}
		if name == "certificate_authority" {
			value = authority(t)
		}
		return render(t, value)
	})
}

// authority is the sample certificate of all examples.
func authority(t *testing.T) string {
	t.Helper()
	match := regexp.MustCompile(`certificateAuthority: (\S+)`).FindStringSubmatch(read(t, "user-data/nodeconfig.yaml"))
	if match == nil {
		t.Fatal("user-data/nodeconfig.yaml has no certificateAuthority")
	}
	return match[1]
}

// check does what nodeadm config check --kubelet-version does.
func check(name, text string) (config.Config, error) {
	v, err := kubelet.ParseVersion(kubeletVersion)
	if err != nil {
		return config.Config{}, err
	}
	documents, wanted, err := config.Read([]config.Source{{Name: name, Data: []byte(text)}}, config.ReadOptions{Scripts: true})
	if err == nil && documents.Tree == nil {
		err = errors.New("there is no configuration in it")
	}
	if err == nil {
		err = plan.CheckKubelet(wanted, v)
	}
	for _, warning := range documents.Warnings {
		err = errors.Join(err, errors.New(warning))
	}
	return wanted, err
}

func TestUserData(t *testing.T) {
	used := map[string]bool{}
	for _, path := range files(t) {
		found := userData(t, path)
		if len(found) == 0 && !slices.Contains(without, path) {
			t.Errorf("%s: there is no user data in it", path)
		}
		for name, text := range found {
			whole, isPart := wholes[name]
			used[name] = true
			t.Run(name, func(t *testing.T) {
				if !isPart {
					testWhole(t, name, text)
					return
				}
				testPart(t, name, text, whole)
			})
		}
	}
	for name := range wholes {
		if !used[name] {
			t.Errorf("%s was not found", name)
		}
	}
}

// testWhole reads user data that is complete, and broken copies of it.
func testWhole(t *testing.T, name, text string) {
	wanted, err := check(name, text)
	if err != nil {
		t.Fatal(err)
	}
	if wanted.Cluster.Name != clusterName {
		t.Errorf("the cluster is %q", wanted.Cluster.Name)
	}
	for what, change := range map[string]*strings.Replacer{
		"a cluster's name with a space": strings.NewReplacer(clusterName, "my cluster"),
		"an unknown field or flag":      strings.NewReplacer("apiServerEndpoint", "apiServerEndpoin", "--apiserver-endpoint", "--apiserver-endpoin"),
		"a broken certificate":          strings.NewReplacer(authority(t), authority(t)[:40], "$B64_CLUSTER_CA", "Zm9v"),
	} {
		broken := change.Replace(text)
		if broken == text {
			t.Errorf("%s: the copy is not broken", what)
		} else if _, err := check(name, broken); err == nil {
			t.Errorf("%s was not found:\n%s", what, broken)
		}
	}
}

// testPart makes sure that the user's part is in what the instance gets.
func testPart(t *testing.T, name, text, whole string) {
	all, err := check(whole, read(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	own, ownErr := check(name, text)
	switch {
	case ownErr != nil && strings.Contains(text, "node.eks.aws"):
		t.Error(ownErr)
	case ownErr == nil && own.LocalDisks != "" && own.LocalDisks != all.LocalDisks:
		t.Errorf("%s: local disks are %q", whole, all.LocalDisks)
	case ownErr == nil:
		for key, value := range own.Kubelet.Config {
			if !reflect.DeepEqual(all.Kubelet.Config[key], value) {
				t.Errorf("%s: %s is %v", whole, key, all.Kubelet.Config[key])
			}
		}
		for _, flag := range own.Kubelet.Flags {
			if !slices.Contains(all.Kubelet.Flags, flag) {
				t.Errorf("%s: %s is missing", whole, flag)
			}
		}
	default:
		for line := range strings.Lines(text) {
			if !strings.Contains(read(t, whole), line) {
				t.Errorf("%s: %q is missing", whole, line)
			}
		}
	}
}

// What says nothing about a node is refused too.
func TestCheckRefuses(t *testing.T) {
	for _, text := range []string{"", "#!/bin/bash\ntrue\n", "apiVersion: v1\nkind: Pod\n"} {
		if _, err := check("test", text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
}

func TestReadme(t *testing.T) {
	text := read(t, "README.md")
	for _, path := range files(t) {
		if path != "README.md" && path != "examples_test.go" && !strings.Contains(text, "]("+path+")") {
			t.Errorf("README.md does not mention %s", path)
		}
	}
}

// TestMigration makes sure that the guide leaves out no flag of bootstrap.sh
// and no field of the API.
func TestMigration(t *testing.T) {
	text := read(t, "../migration.md")
	for _, flag := range config.BootstrapFlags() {
		if flag.Name != "kube-reserved-policy" && !strings.Contains(text, "`--"+flag.Name) { // that one is nodeadm's own
			t.Errorf("migration.md does not mention --%s", flag.Name)
		}
	}
	fields := 0
	var visit func(path string, kind reflect.Type)
	visit = func(path string, kind reflect.Type) {
		for i := range kind.NumField() {
			field := kind.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case strings.HasSuffix(field.Tag.Get("doc"), " Extension."):
			case field.Type.Kind() == reflect.Struct:
				visit(path+name+".", field.Type)
			case strings.Contains(path, "."):
				fields++
				// A row may name several fields of one parent, or those of a map.
				if !strings.Contains(text, "`"+path+name+"`") && !strings.Contains(text, "`"+path+name+".") && !strings.Contains(text, ", `"+name+"` |") {
					t.Errorf("migration.md does not mention %s%s", path, name)
				}
			}
		}
	}
	visit("", reflect.TypeFor[config.NodeConfig]())
	if fields < 15 {
		t.Errorf("only %d fields were looked at", fields)
	}
}

// TestCommands gives every nodeadm command of the guides and of the Image
// Builder component to the program with --help behind it: flags that do not
// exist are refused, and nothing is run.
func TestCommands(t *testing.T) {
	program := filepath.Join(t.TempDir(), "nodeadm")
	if out, err := exec.Command("make", "--silent", "-C", "../..", "build", "BIN="+program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	refused := func(call []string) string {
		args := call[1:]
		switch filepath.Base(call[0]) {
		case "bootstrap.sh":
			args = append([]string{"bootstrap"}, args...)
		case "max-pods-calculator.sh":
			args = append([]string{"max-pods"}, args...)
		}
		if i := slices.Index(args, "--"); i >= 0 {
			args = args[:i]
		}
		out, err := exec.Command(program, append(slices.Clone(args), "--help")...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "USAGE:\n   nodeadm "+args[0]) {
			return strings.TrimSpace(string(out))
		}
		return ""
	}
	for path, scripts := range map[string][]string{
		"../migration.md": codeOf(read(t, "../migration.md")),
		component:         commandsOf(t, component),
	} {
		count := 0
		for _, script := range scripts {
			for _, call := range calls(t, path, script) {
				count++
				if why := refused(call); why != "" {
					t.Errorf("%s: %s: %s", path, strings.Join(call, " "), why)
				}
			}
		}
		if count == 0 {
			t.Errorf("%s: there are no commands in it", path)
		}
	}
	for _, call := range [][]string{{"nodeadm", "no-such-command"}, {"nodeadm", "init", "--no-such-flag"}, {"/etc/eks/bootstrap.sh", "c", "--no-such-flag", "x"}} {
		if refused(call) == "" {
			t.Errorf("%s was not refused", strings.Join(call, " "))
		}
	}
}

// commandsOf are the shell commands of an Image Builder component.
func commandsOf(t *testing.T, path string) (scripts []string) {
	t.Helper()
	var doc struct {
		Phases []struct {
			Steps []struct {
				Action string
				Inputs yaml.Node
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, path)), &doc); err != nil {
		t.Fatal(err)
	}
	for _, phase := range doc.Phases {
		for _, step := range phase.Steps {
			if step.Action != "ExecuteBash" {
				continue
			}
			var inputs struct{ Commands []string }
			if err := step.Inputs.Decode(&inputs); err != nil {
				t.Fatal(err)
			}
			scripts = append(scripts, inputs.Commands...)
		}
	}
	return scripts
}

// codeOf is the indented code of a Markdown text.
func codeOf(text string) (scripts []string) {
	for line := range strings.Lines(text) {
		if code, found := strings.CutPrefix(line, "    "); found {
			scripts = append(scripts, code)
		}
	}
	return scripts
}

// calls are the words of each call of nodeadm, under any of its names.
func calls(t *testing.T, path, script string) (found [][]string) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(script), path)
	if err != nil {
		return nil // a line of something else
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		call, isCall := n.(*syntax.CallExpr)
		if !isCall || len(call.Args) < 2 {
			return true
		}
		switch filepath.Base(call.Args[0].Lit()) {
		case "nodeadm", "bootstrap.sh", "max-pods-calculator.sh":
			words, err := expand.Fields(&expand.Config{Env: expand.FuncEnviron(func(string) string { return "x" })}, call.Args...)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			found = append(found, words)
		}
		return true
	})
	return found
}

// TestComponentIsAnImageBuild: what an image needs the commands know, and the
// component says none of it a second time.
func TestComponentIsAnImageBuild(t *testing.T) {
	var steps []string
	for _, script := range commandsOf(t, component) {
		for _, call := range calls(t, component, script) {
			if call[1] == "image" {
				steps = append(steps, call[2])
			}
		}
	}
	if want := []string{"install", "check", "clean"}; !slices.Equal(steps, want) {
		t.Errorf("nodeadm image %q, want %q", steps, want)
	}
	if text := read(t, component); strings.Contains(text, "-version.txt") || strings.Contains(text, "ln -s") {
		t.Error("it does by hand what nodeadm image install does")
	}
}
