package faults

import "golang.org/x/sys/unix"

// olderCalls are those that newer architectures are without. C programs and
// libraries still make them.
var olderCalls = map[uint64]call{
	unix.SYS_OPEN:      {"open", []name{path(0)}, opensForWriting(1)},
	unix.SYS_CREAT:     {"creat", []name{path(0)}, nil},
	unix.SYS_MKDIR:     {"mkdir", []name{path(0)}, nil},
	unix.SYS_RMDIR:     {"rmdir", []name{path(0)}, nil},
	unix.SYS_MKNOD:     {"mknod", []name{path(0)}, nil},
	unix.SYS_RENAME:    {"rename", []name{path(0), path(1)}, nil},
	unix.SYS_UNLINK:    {"unlink", []name{path(0)}, nil},
	unix.SYS_LINK:      {"link", []name{path(0), path(1)}, nil},
	unix.SYS_SYMLINK:   {"symlink", []name{path(1)}, nil},
	unix.SYS_CHMOD:     {"chmod", []name{path(0)}, nil},
	unix.SYS_CHOWN:     {"chown", []name{path(0)}, nil},
	unix.SYS_LCHOWN:    {"lchown", []name{path(0)}, nil},
	unix.SYS_UTIME:     {"utime", []name{path(0)}, nil},
	unix.SYS_UTIMES:    {"utimes", []name{path(0)}, nil},
	unix.SYS_FUTIMESAT: {"futimesat", []name{at(0, 1)}, nil},
}
