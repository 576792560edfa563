package image

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/eks-bootstrap/nodeadm/internal/rootfs"
)

// configFiles are the *.conf in a kind of directory, as systemd and kmod read
// them: by name, and of two with one name the one in the last directory.
func configFiles(root rootfs.Root, kind string) (paths []string) {
	byName := map[string]string{}
	for _, dir := range []string{"/lib/", "/usr/lib/", "/usr/local/lib/", "/run/", "/etc/"} {
		found, _ := root.Glob(dir + kind + "/*.conf") // where it leads nowhere there are none
		for _, file := range found {
			byName[path.Base(file)] = file
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		paths = append(paths, byName[name])
	}
	return paths
}

// lines are those of a configuration file that say something, continued ones
// joined; what cannot be read, such as a link to /dev/null, says nothing.
func lines(root rootfs.Root, path string) (lines []string) {
	data, _ := root.ReadFile(path)
	for _, line := range strings.Split(strings.ReplaceAll(string(data), "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != ';' {
			lines = append(lines, line)
		}
	}
	return lines
}

// setting is a kernel setting, and the file that says so.
type setting struct{ value, file string }

// settings are the kernel's after systemd-sysctl: the last one to name a setting
// counts. Patterns do not, since they leave alone what is named, as install does.
func settings(root rootfs.Root) map[string]setting {
	settings := map[string]setting{}
	for _, file := range configFiles(root, "sysctl.d") {
		for _, line := range lines(root, file) {
			if name, value, found := strings.Cut(line, "="); found {
				settings[settingName(name)] = setting{strings.TrimSpace(value), file}
			}
		}
	}
	return settings
}

// settingName writes a setting's name with slashes: the first separator says
// which of the two it is.
func settingName(name string) string {
	name = strings.TrimPrefix(strings.TrimSpace(name), "-")
	if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '.' {
		name = strings.NewReplacer(".", "/", "/", ".").Replace(name)
	}
	if name == "net/ipv4/conf/all/forwarding" {
		return "net/ipv4/ip_forward" // one and the same
	}
	return name
}

// barred tells of modules that modprobe.d keeps from being loaded.
func barred(root rootfs.Root, modules []string) string {
	for _, file := range configFiles(root, "modprobe.d") {
		for _, line := range lines(root, file) {
			words := append(strings.Fields(line), "", "", "")
			if !slices.Contains(modules, strings.ReplaceAll(words[1], "-", "_")) {
				continue
			}
			if program := path.Base(words[2]); words[0] == "blacklist" || words[0] == "install" && (program == "true" || program == "false") {
				return file + " keeps the module " + words[1] + " from being loaded: " + line
			}
		}
	}
	return ""
}
