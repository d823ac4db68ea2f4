package embedded

import "embed"

const arch = "amd64"

//go:embed bin/*-amd64
var files embed.FS
