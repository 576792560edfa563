// Package faults runs nodeadm and lets it down wherever it changes the disk.
//
// A machine loses power, a disk is full, a filesystem turns read-only: what
// matters is what is left then, and that depends on the moment. So a moment is
// something that can be counted here. Run follows a command, with all its
// threads and children, and stops it in front of each system call that would
// change something below a directory. There the call can be let through, be
// made to fail as if the disk had refused it, or be the one before which
// everything ends. Doing that once for every such call leaves out no moment.
//
// It knows nothing of nodeadm but its command line, so it says the same of any
// way to write files.
package faults
