// Package agentpb is the protocol between the host and the agent in a lasting
// box: agent.proto says what is asked and answered, the rest is generated from
// it (`make proto`). Neither end believes what it reads here; the checks are in
// packages guest (the host's end) and daemon (the box's).
package agentpb
