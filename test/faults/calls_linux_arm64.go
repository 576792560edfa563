package faults

// olderCalls: arm64 came after the last of them.
var olderCalls map[uint64]call
