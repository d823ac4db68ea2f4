package embedded

import "embed"

const arch = "arm64"

//go:embed bin/*-arm64
var files embed.FS
