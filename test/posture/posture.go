// Package posture holds the tests of what a box's walls are, read from /proc of
// live boxes, and of the doctor, run where something was taken away.
package posture
