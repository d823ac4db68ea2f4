// Package hostile attacks the walls of a box from the inside, in every tier, as
// root and as an ordinary user.
//
// The attacks are data, in testdata/*.cases: what is run, what must come of it
// in each tier, and what comes of it where there is no wall. A case is run
//
//   - outside of any box, or behind namespaces alone, as its control. A case
//     whose control does not succeed proves nothing and fails;
//   - inside a box, between two witnesses, which show that the box stood before
//     and stands afterwards. Many cases share one box; those that end their box
//     have one each.
//
// A neighbour, a second box, works beside each of them and must come to its
// end, and nothing may be left on the host.
//
// The caller is a careless one (testdata/launch.py): it has secrets in its
// environment and its keyring, files open, and listens on sockets. The control
// finds all of them.
//
// Attacks do no harm where a wall is open: what would, is tried up to the point
// at which the kernel has let it in, such as opening a file for writing without
// writing to it.
//
// `go test` runs what CI has time for. The build tag hostile, which is
// `make hostile`, adds the cases marked long; hostilelong, which is
// `make hostile-long`, runs all in random order, several boxes at once.
package hostile
