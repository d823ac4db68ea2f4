// Package guest is the host's end of the agent's protocol.
package guest

import _ "github.com/sunaba-dev/sunaba/internal/agent/agentpb/agentpbconnect"
