// Package mcp serves boxes to models.
package mcp

import _ "github.com/modelcontextprotocol/go-sdk/mcp"
