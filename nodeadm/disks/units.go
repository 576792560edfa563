package disks

import (
	"path"

	"github.com/coreos/go-systemd/v22/unit"
)

const unitDir = "/etc/systemd/system/"

// unitFile is a mount unit that is wanted.
type unitFile struct {
	name, text string
	required   string // the service that is not to run without it, if there is one
}

// links are the directories with a link to a unit that starts at boot.
func (u unitFile) links() []string {
	links := []string{"multi-user.target.wants"}
	if u.required != "" {
		links = append(links, u.required+".requires")
	}
	return links
}

// filesystemUnit mounts a filesystem. It is named by its UUID: the names of
// devices and arrays change from boot to boot, and labels are not unique.
func filesystemUnit(where, uuid string) unitFile {
	return mountUnit(where, "Instance store volumes", "/dev/disk/by-uuid/"+uuid, "xfs", "defaults,noatime", "")
}

// moveUnit mounts a directory of the filesystem in the place of another. The
// service that keeps its data there does not start without it: it would begin
// anew on the root disk, and its data would be hidden from it later.
func moveUnit(m move, volume string) unitFile {
	return mountUnit(m.where, m.where+" on instance store volumes", path.Join(volume, path.Base(m.where)), "none", "bind", m.service)
}

func mountUnit(where, description, what, kind, options, service string) unitFile {
	text := "# Written by nodeadm for --local-disks.\n[Unit]\nDescription=" + description + "\n"
	install := "WantedBy=multi-user.target\n"
	if service != "" {
		text += "Before=" + service + "\n"
		install += "RequiredBy=" + service + "\n"
	}
	text += "\n[Mount]\nWhat=" + what + "\nWhere=" + where + "\nType=" + kind + "\nOptions=" + options + "\n\n[Install]\n" + install
	return unitFile{unit.UnitNamePathEscape(where) + ".mount", text, service}
}
