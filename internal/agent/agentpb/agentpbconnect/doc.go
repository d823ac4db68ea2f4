// Package agentpbconnect is the agent's protocol as Connect calls: a client and a
// handler for each service of agent.proto. All of it but this file is generated
// (`make proto`).
package agentpbconnect
