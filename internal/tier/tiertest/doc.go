// Package tiertest holds the tests that every tier of host processes has to
// pass, through box.Tier and what a box offers, and that look from the host's
// side at what is there and what is left.
//
// For now it is about boxes that last: that they outlive their maker, that
// nobody takes up what is not exactly such a box, and that nothing is left of
// those that are destroyed.
package tiertest
