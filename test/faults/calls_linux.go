//go:build amd64 || arm64

package faults

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// call says how a system call names what it changes.
type call struct {
	name string
	// names are the files that the call changes, each by where it stands among
	// the arguments. A call without any changes everything.
	names []name
	// when, if set, tells whether these arguments change anything at all.
	when func(t tracee, args [6]uint64) bool
}

// calls are the system calls that change the disk, by number; those that only
// older architectures have stand in calls_linux_amd64.go. Memory mapped for
// writing and io_uring are left out: Go's os package uses neither.
var calls = withOlder(map[uint64]call{
	unix.SYS_OPENAT:    {"openat", []name{at(0, 1)}, opensForWriting(2)},
	unix.SYS_OPENAT2:   {"openat2", []name{at(0, 1)}, opensForWriting2},
	unix.SYS_MKDIRAT:   {"mkdirat", []name{at(0, 1)}, nil},
	unix.SYS_MKNODAT:   {"mknodat", []name{at(0, 1)}, nil},
	unix.SYS_RENAMEAT:  {"renameat", []name{at(0, 1), at(2, 3)}, nil},
	unix.SYS_RENAMEAT2: {"renameat2", []name{at(0, 1), at(2, 3)}, nil},
	unix.SYS_UNLINKAT:  {"unlinkat", []name{at(0, 1)}, nil},
	unix.SYS_LINKAT:    {"linkat", []name{at(0, 1), at(2, 3)}, nil},
	unix.SYS_SYMLINKAT: {"symlinkat", []name{at(1, 2)}, nil},

	unix.SYS_WRITE:           {"write", []name{file(0)}, nil},
	unix.SYS_PWRITE64:        {"pwrite64", []name{file(0)}, nil},
	unix.SYS_WRITEV:          {"writev", []name{file(0)}, nil},
	unix.SYS_PWRITEV:         {"pwritev", []name{file(0)}, nil},
	unix.SYS_PWRITEV2:        {"pwritev2", []name{file(0)}, nil},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", []name{file(2)}, nil},
	unix.SYS_SENDFILE:        {"sendfile", []name{file(0)}, nil},
	unix.SYS_SPLICE:          {"splice", []name{file(2)}, nil},
	unix.SYS_FTRUNCATE:       {"ftruncate", []name{file(0)}, nil},
	unix.SYS_FALLOCATE:       {"fallocate", []name{file(0)}, nil},
	unix.SYS_TRUNCATE:        {"truncate", []name{path(0)}, nil},

	unix.SYS_FSYNC:           {"fsync", []name{opened(0)}, nil},
	unix.SYS_FDATASYNC:       {"fdatasync", []name{opened(0)}, nil},
	unix.SYS_SYNC_FILE_RANGE: {"sync_file_range", []name{opened(0)}, nil},
	unix.SYS_SYNCFS:          {"syncfs", []name{opened(0)}, nil},
	unix.SYS_SYNC:            {"sync", nil, nil},

	unix.SYS_FCHMOD:       {"fchmod", []name{opened(0)}, nil},
	unix.SYS_FCHMODAT:     {"fchmodat", []name{at(0, 1)}, nil},
	unix.SYS_FCHMODAT2:    {"fchmodat2", []name{at(0, 1)}, nil},
	unix.SYS_FCHOWN:       {"fchown", []name{opened(0)}, nil},
	unix.SYS_FCHOWNAT:     {"fchownat", []name{at(0, 1)}, nil},
	unix.SYS_UTIMENSAT:    {"utimensat", []name{at(0, 1)}, nil},
	unix.SYS_SETXATTR:     {"setxattr", []name{path(0)}, nil},
	unix.SYS_LSETXATTR:    {"lsetxattr", []name{path(0)}, nil},
	unix.SYS_FSETXATTR:    {"fsetxattr", []name{opened(0)}, nil},
	unix.SYS_REMOVEXATTR:  {"removexattr", []name{path(0)}, nil},
	unix.SYS_LREMOVEXATTR: {"lremovexattr", []name{path(0)}, nil},
	unix.SYS_FREMOVEXATTR: {"fremovexattr", []name{opened(0)}, nil},
})

func withOlder(calls map[uint64]call) map[uint64]call {
	maps.Copy(calls, olderCalls)
	return calls
}

func opensForWriting(flags int) func(tracee, [6]uint64) bool {
	return func(_ tracee, args [6]uint64) bool { return forWriting(args[flags]) }
}

// opensForWriting2 finds the flags in the struct that openat2 is given.
func opensForWriting2(t tracee, args [6]uint64) bool {
	how, err := t.memory(args[2], 8)
	return err == nil && len(how) == 8 && forWriting(binary.NativeEndian.Uint64(how))
}

func forWriting(flags uint64) bool {
	return flags&unix.O_PATH == 0 && (flags&unix.O_ACCMODE != unix.O_RDONLY || flags&(unix.O_CREAT|unix.O_TRUNC) != 0)
}

// describe is the call as people read it. It tells as well whether the call
// changes anything below the root.
func (c call) describe(t tracee, args [6]uint64) (text string, changes bool) {
	if c.when != nil && !c.when(t, args) {
		return "", false
	}
	var said []string
	changes = len(c.names) == 0
	for _, find := range c.names {
		path, found := find(t, args)
		if !found {
			return "", false
		}
		shown, below := t.below(path)
		said, changes = append(said, shown), changes || below
	}
	return strings.TrimSpace(c.name + " " + strings.Join(said, " -> ")), changes
}

// name finds the path of a file that a system call is about. There is none
// where the arguments make no sense; then the call fails by itself.
type name func(t tracee, args [6]uint64) (string, bool)

// at is a path that starts, unless it is absolute, at an open directory. An
// empty one is that directory, or file, itself.
func at(dir, path int) name {
	return func(t tracee, args [6]uint64) (string, bool) { return t.path(args[dir], args[path]) }
}

// path is a path that starts at the working directory.
func path(path int) name {
	return func(t tracee, args [6]uint64) (string, bool) { return t.path(workingDirectory, args[path]) }
}

// opened is a file or directory that is open.
func opened(fd int) name {
	return func(t tracee, args [6]uint64) (string, bool) {
		found, err := t.descriptor(args[fd])
		return found, err == nil
	}
}

// file is a regular file that is open: most writes go to pipes and sockets.
func file(fd int) name {
	return func(t tracee, args [6]uint64) (string, bool) {
		info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", t.tid, int32(args[fd])))
		if err != nil || !info.Mode().IsRegular() {
			return "", false
		}
		return opened(fd)(t, args)
	}
}

// tracee is a thread that has stopped.
type tracee struct {
	tid  int
	root string
}

// below shows a path as seen from the root, and tells whether it lies there: by
// name, or because links lead there.
func (t tracee) below(path string) (shown string, below bool) {
	// The last element is what the call is about, not where it leads.
	found := filepath.Clean(path)
	if dir, err := filepath.EvalSymlinks(filepath.Dir(found)); err == nil {
		found = filepath.Join(dir, filepath.Base(found))
	}
	for _, p := range []string{found, filepath.Clean(path)} {
		if rel, err := filepath.Rel(t.root, p); err == nil && filepath.IsLocal(rel) {
			return rel, true
		}
	}
	return found, false
}

// path is what a path in the tracee's memory means when it starts at dir.
func (t tracee) path(dir, address uint64) (string, bool) {
	given, err := t.text(address)
	if err != nil || filepath.IsAbs(given) {
		return given, err == nil
	}
	start, err := t.descriptor(dir)
	return start + "/" + given, err == nil
}

// workingDirectory is AT_FDCWD as it stands in a register.
const workingDirectory = 1<<64 + unix.AT_FDCWD

// descriptor is the path of what is open under a number.
func (t tracee) descriptor(number uint64) (string, error) {
	// Descriptors are 32 bits wide; what else is in the register means nothing.
	link := fmt.Sprintf("/proc/%d/fd/%d", t.tid, int32(number))
	if int32(number) == unix.AT_FDCWD {
		link = fmt.Sprintf("/proc/%d/cwd", t.tid)
	}
	path, err := os.Readlink(link)
	return strings.TrimSuffix(path, " (deleted)"), err
}

// text reads a string; a null pointer counts as an empty one.
func (t tracee) text(address uint64) (string, error) {
	if address == 0 {
		return "", nil
	}
	var read []byte
	for len(read) < unix.PathMax {
		// Page by page: what comes after the string may not be readable.
		const page = 4096
		next := address + uint64(len(read))
		chunk, err := t.memory(next, page-int(next%page))
		if err != nil {
			return "", err
		}
		if end := slices.Index(chunk, 0); end >= 0 {
			return string(append(read, chunk[:end]...)), nil
		}
		read = append(read, chunk...)
	}
	return "", unix.ENAMETOOLONG
}

func (t tracee) memory(address uint64, length int) ([]byte, error) {
	into := make([]byte, length)
	local := []unix.Iovec{{Base: &into[0], Len: uint64(length)}}
	n, err := unix.ProcessVMReadv(t.tid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: length}}, 0)
	return into[:max(n, 0)], err
}
