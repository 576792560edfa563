package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// program is a binary, and what the linker wrote into it about its origin.
type program struct {
	path     string
	info     *debug.BuildInfo
	requires map[string][]string // by module: the modules whose packages its own import
	licences []licence
}

// licence is one text, and the files that hold it.
type licence struct {
	text  string
	files []string // as MODULE VERSION: FILE
}

// standard stands for the standard library among modules. Scanners know it by
// this name.
const standard = "stdlib"

// inspect reads a binary. Which modules are in it the binary itself says;
// which of them imports which, and where their licences lie, is asked of go,
// for the same tags and platform.
func inspect(path string) (*program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s: %s is replaced by %s, which is not what its name says", path, m.Path, m.Replace.Path)
		}
	}
	p := &program{path: path, info: info}
	packages, err := p.packages()
	if err != nil {
		return nil, err
	}
	p.requires = requires(packages)
	if p.licences, err = p.findLicences(packages); err != nil {
		return nil, err
	}
	return p, nil
}

// setting is what the binary was built with, such as GOARCH or -tags.
func (p *program) setting(key string) string {
	for _, s := range p.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// goPackage is a package as go list describes it.
type goPackage struct {
	ImportPath string
	Dir        string
	Standard   bool
	Imports    []string
	Module     *struct{ Path, Dir string }
}

func (p goPackage) module() string {
	if p.Standard {
		return standard
	}
	return p.Module.Path
}

// packages are those that are compiled into the program.
func (p *program) packages() ([]goPackage, error) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Standard,Imports,Module", "-tags", p.setting("-tags"), p.info.Path)
	list.Dir = top
	list.Env = append(os.Environ(), "GOOS="+p.setting("GOOS"), "GOARCH="+p.setting("GOARCH"), "CGO_ENABLED=0", "GOWORK=off")
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", list.Args, err, stderr.Bytes())
	}
	var packages []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var one goPackage
		if err := dec.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, one)
	}

	// The two have to agree, or the binary is of another commit.
	listed := map[string]bool{}
	for _, one := range packages {
		listed[one.module()] = true
	}
	delete(listed, standard)
	delete(listed, p.info.Main.Path)
	linked := map[string]bool{}
	for _, m := range p.info.Deps {
		linked[m.Path] = true
	}
	if !maps.Equal(listed, linked) {
		return nil, fmt.Errorf("%s holds the modules %v, and this tree needs %v", p.path, sorted(linked), sorted(listed))
	}
	return packages, nil
}

// requires goes from imports of packages to needs of modules.
func requires(packages []goPackage) map[string][]string {
	moduleOf := map[string]string{}
	for _, p := range packages {
		moduleOf[p.ImportPath] = p.module()
	}
	edges := map[string]map[string]bool{}
	for _, p := range packages {
		from := p.module()
		if edges[from] == nil {
			edges[from] = map[string]bool{}
		}
		for _, path := range p.Imports {
			if to := moduleOf[path]; to != "" && to != from {
				edges[from][to] = true
			}
		}
	}
	result := map[string][]string{}
	for from, to := range edges {
		result[from] = sorted(to)
	}
	return result
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-]\w+)*$`)

// findLicences collects what the licences of the modules want to be passed on
// with a binary: the texts beside the packages that are compiled in, and above
// these up to the top of the module.
func (p *program) findLicences(packages []goPackage) ([]licence, error) {
	versions := map[string]string{standard: p.info.GoVersion}
	for _, m := range p.info.Deps {
		versions[m.Path] = m.Version
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	goroot := strings.TrimSpace(string(root))

	seen := map[string]bool{}  // directories
	found := map[string]bool{} // modules
	files := map[string][]string{}
	read := func(module, moduleDir, dir string) error {
		if seen[dir] {
			return nil
		}
		seen[dir] = true
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !licenceName.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			path := filepath.Join(dir, e.Name())
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(moduleDir, path)
			if err != nil {
				return err
			}
			found[module] = true
			key := strings.TrimSpace(string(text))
			files[key] = append(files[key], fmt.Sprintf("%s %s: %s", module, versions[module], filepath.ToSlash(name)))
		}
		return nil
	}
	if err := read(standard, goroot, goroot); err != nil {
		return nil, err
	}
	for _, one := range packages {
		if one.Standard || one.Module.Path == p.info.Main.Path {
			continue
		}
		for dir := one.Dir; ; dir = filepath.Dir(dir) {
			if err := read(one.Module.Path, one.Module.Dir, dir); err != nil {
				return nil, err
			}
			if dir == one.Module.Dir {
				break
			}
		}
	}
	for _, module := range sorted(versions) {
		if !found[module] {
			return nil, fmt.Errorf("%s %s comes without a licence", module, versions[module])
		}
	}
	var result []licence
	for text, names := range files {
		slices.Sort(names)
		result = append(result, licence{text, names})
	}
	slices.SortFunc(result, func(a, b licence) int { return cmp.Compare(a.files[0], b.files[0]) })
	return result, nil
}

// thirdParty is the file that goes with the binary.
func (p *program) thirdParty() []byte {
	var b bytes.Buffer
	b.WriteString("nodeadm is compiled together with the following, each under its own licence.\n")
	for _, l := range p.licences {
		fmt.Fprintf(&b, "\n%s\n\n", strings.Repeat("=", 80))
		for _, name := range l.files {
			fmt.Fprintln(&b, name)
		}
		fmt.Fprintf(&b, "\n%s\n", l.text)
	}
	return b.Bytes()
}

// sorted are the keys of m in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
