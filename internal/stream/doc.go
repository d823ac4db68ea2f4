// Package stream carries bytes between a box and whoever watches it, and never
// trusts them.
//
// A program in a box chooses every byte of its output. That gives it three
// weapons against the reader, and this package has an answer to each.
//
// Volume: a program can write faster than anyone reads, for ever. [Pump] moves
// bytes through one fixed buffer, so that a slow reader slows the program down.
// [Budget] ends a run at its output limit. [Capture] and [Ring] keep a bounded
// part. Nothing here grows with the length of a stream.
//
// Silence: a program can hang. [Activity] is the clock that notices.
//
// Meaning: to a terminal, some bytes are commands. They can retitle the window,
// fill the clipboard, make the terminal type an answer into the caller's shell,
// or overwrite the line that said "deleting everything". Bidirectional controls
// show code in another order than a compiler reads it (Trojan Source,
// CVE-2021-42574), and tag characters carry a message that only a language
// model sees. [Clean] and [Cleaner] show all of that as text. [Interactive]
// lets a live session keep the few sequences that an editor needs, and shows
// the rest.
//
// Both filters decide at the first byte that is wrong, escape that byte alone
// and read on: no byte of the input is ever missing from the output, which is
// what goes wrong in filters that wait for the end of a sequence that never
// ends.
package stream
