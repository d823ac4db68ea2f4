package rest

import "github.com/sunaba-dev/sunaba/box"

// table is every route. What each declares besides: 401, 403, 404 below a box,
// 422, 429, 500, 501 and 503.
func (a *API) table() []route {
	const (
		read  = box.ScopeRead
		write = box.ScopeWrite
		exec  = box.ScopeExec

		inBox = "/v1/boxes/{id}"
		inPID = inBox + "/processes/{pid}"
		inCtx = inBox + "/contexts/{ctx}"
		files = inBox + "/files"
		snap  = "/v1/snapshots/{ref}"
		vol   = "/v1/volumes/{volume}"
	)
	json := []int{400, 408, 413, 415} // of a body that is JSON
	state := []int{409}               // of what must not be there, or must be otherwise
	made := answers{status: 201}      // of what was not there before
	more := func(l ...[]int) (all []int) {
		for _, s := range l {
			all = append(all, s...)
		}
		return all
	}
	return []route{
		{pattern: "GET /v1/me", id: "whoami", scope: "", summary: "Tell what holds for the key", add: typed(a.whoami)},
		{pattern: "POST /v1/keys", id: "createKey", scope: box.ScopeAdmin, summary: "Make a key", errors: json, answers: made, add: typed(a.createKey)},
		{pattern: "GET /v1/keys", id: "listKeys", scope: box.ScopeAdmin, summary: "List keys", add: typed(a.listKeys)},
		{pattern: "DELETE /v1/keys/{key}", id: "revokeKey", scope: box.ScopeAdmin, summary: "Make a key useless for good", errors: []int{404}, add: quiet(a.revokeKey)},
		{pattern: "POST /v1/execute", id: "execute", scope: exec, summary: "Run a program in a box of its own", errors: more(json, state), max: maxExecute, add: typed(a.execute)},

		{pattern: "POST /v1/boxes", id: "createBox", scope: write, summary: "Make a box that lasts", errors: more(json, state), answers: made, add: typed(a.create)},
		{pattern: "GET /v1/boxes", id: "listBoxes", scope: read, summary: "List boxes", add: typed(a.list)},
		{pattern: "GET " + inBox, id: "inspectBox", scope: read, summary: "Tell of a box", add: typed(a.inspect)},
		{pattern: "DELETE " + inBox, id: "destroyBox", scope: write, summary: "Destroy a box", add: quiet(a.destroy)},
		{pattern: "POST " + inBox + "/prolong", id: "prolongBox", scope: write, summary: "Let a box live longer", errors: more(json, state), add: typed(a.prolong)},
		{pattern: "POST " + inBox + "/pause", id: "pauseBox", scope: write, summary: "Make a box stand still until the next call", errors: state, add: typed(a.pause)},
		{pattern: "POST " + inBox + "/resume", id: "resumeBox", scope: write, summary: "Let a paused box go on", errors: state, add: typed(a.resume)},
		{pattern: "POST " + inBox + "/snapshots", id: "snapshotBox", scope: write, summary: "Keep a copy of a box", errors: more(json, state), answers: made, add: typed(a.snapshot)},
		{pattern: "POST " + inBox + "/fork", id: "forkBox", scope: write, summary: "Make copies of a box that go on from where it is", errors: more(json, state), answers: made, add: typed(a.fork)},
		{pattern: "GET /v1/snapshots", id: "listSnapshots", scope: read, summary: "List snapshots, newest first", add: typed(a.snapshotList)},
		{pattern: "GET " + snap, id: "inspectSnapshot", scope: read, summary: "Tell of a snapshot", add: typed(a.snapshotInfo)},
		{pattern: "DELETE " + snap, id: "deleteSnapshot", scope: write, summary: "Forget a snapshot", add: quiet(a.deleteSnapshot)},
		{pattern: "POST /v1/volumes", id: "createVolume", scope: write, summary: "Make a volume", errors: more(json, state), answers: made, add: typed(a.makeVolume)},
		{pattern: "GET /v1/volumes", id: "listVolumes", scope: read, summary: "List volumes by name", add: typed(a.volumeList)},
		{pattern: "GET " + vol, id: "inspectVolume", scope: read, summary: "Tell of a volume", add: typed(a.volumeInfo)},
		{pattern: "DELETE " + vol, id: "deleteVolume", scope: write, summary: "Delete a volume and what is in it", errors: state, add: quiet(a.deleteVolume)},
		{pattern: "GET " + inBox + "/network", id: "boxNetwork", scope: read, summary: "Tell what a box reached and was denied", add: typed(a.network)},
		{pattern: "PUT " + inBox + "/network", id: "setBoxNetwork", scope: write, summary: "Put other rules of a box's network in force", errors: more(json, state), add: typed(a.setNetwork)},
		{pattern: "GET " + inBox + "/metrics", id: "boxMetrics", scope: read, summary: "Tell what a box uses", add: typed(a.metrics)},

		{pattern: "POST " + inBox + "/exec", id: "exec", scope: exec, summary: "Run a program in the foreground", errors: more(json, state), answers: eventsOr[ExecResult]("The events are start, stdout, stderr, beat, end, and error when the stream breaks off. A caller that goes away ends the program, unless it is detached."), add: streamed(a.exec)},
		{pattern: "POST " + inBox + "/processes", id: "startProcess", scope: exec, summary: "Start a program", errors: more(json, state), answers: made, add: typed(a.start)},
		{pattern: "GET " + inBox + "/processes", id: "listProcesses", scope: read, summary: "List programs", add: typed(a.processList)},
		{pattern: "GET " + inPID, id: "inspectProcess", scope: read, summary: "Tell of a program", add: typed(a.processInfo)},
		{pattern: "DELETE " + inPID, id: "forgetProcess", scope: exec, summary: "Forget a program that has ended", errors: state, add: quiet(a.forget)},
		{pattern: "GET " + inPID + "/output", id: "followProcess", scope: read, summary: "Follow a program's output", answers: eventsOnly("The events are stdout, stderr, beat, end, and error when the stream breaks off. With Last-Event-ID or from every byte comes once."), add: streamed(a.output)},
		{pattern: "POST " + inPID + "/input", id: "writeInput", scope: exec, summary: "Write to a program's standard input", errors: more(json, state), body: pieceBody, answers: documentOf[InputTaken](), add: streamed(a.input)},
		{pattern: "POST " + inPID + "/signal", id: "signalProcess", scope: exec, summary: "Send a signal", errors: more(json, state), add: quiet(a.signal)},
		{pattern: "POST " + inPID + "/resize", id: "resizeTerminal", scope: exec, summary: "Change the size of a program's terminal", errors: more(json, state), add: quiet(a.resize)},

		{pattern: "GET " + files, id: "readFile", scope: read, summary: "Read a file", errors: []int{409, 416}, answers: octets("application/octet-stream"), add: streamed(a.read)},
		{pattern: "PUT " + files, id: "writeFile", scope: write, summary: "Write a file in one step", errors: []int{400, 408, 409}, body: rawOf("application/octet-stream"), answers: documentOf[Entry](), add: streamed(a.write)},
		{pattern: "DELETE " + files, id: "removeFile", scope: write, summary: "Remove a file or folder", errors: state, add: quiet(a.remove)},
		{pattern: "GET " + files + "/stat", id: "statFile", scope: read, summary: "Tell of a file", add: typed(a.stat)},
		{pattern: "GET " + files + "/list", id: "listFiles", scope: read, summary: "List a folder", add: typed(a.fileList)},
		{pattern: "POST " + files + "/mkdir", id: "makeFolder", scope: write, summary: "Make a folder", errors: more(json, state), add: typed(a.makeDir)},
		{pattern: "POST " + files + "/move", id: "moveFile", scope: write, summary: "Rename a file or folder", errors: more(json, state), add: quiet(a.move)},
		{pattern: "GET " + files + "/archive", id: "readArchive", scope: read, summary: "Read a folder as a tar stream", answers: octets("application/x-tar"), add: streamed(a.pack)},
		{pattern: "PUT " + files + "/archive", id: "writeArchive", scope: write, summary: "Unpack a tar stream below a folder", errors: []int{400, 408, 409}, body: rawOf("application/x-tar"), answers: documentOf[Unpacked](), add: streamed(a.unpack)},
		{pattern: "GET " + files + "/watch", id: "watchFiles", scope: read, summary: "Watch a folder", answers: eventsOnly("The events are ready once the watch stands, change, and error."), add: streamed(a.watch)},
		{pattern: "POST " + files + "/sign", id: "signURL", scope: read, summary: "Make a URL for one file that takes no key", errors: json, add: typed(a.sign)},
		{pattern: "GET " + signedPath, id: "readSigned", public: true, summary: "Read a file by a signed URL", errors: []int{409, 416}, answers: octets("application/octet-stream"), add: streamed(a.signedRead)},
		{pattern: "PUT " + signedPath, id: "writeSigned", public: true, summary: "Write a file by a signed URL", errors: []int{400, 408, 409}, body: rawOf("application/octet-stream"), answers: documentOf[Entry](), add: streamed(a.signedWrite)},

		{pattern: "POST " + inBox + "/contexts", id: "openContext", scope: exec, summary: "Start an interpreter", errors: more(json, state), answers: made, add: typed(a.openContext)},
		{pattern: "GET " + inBox + "/contexts", id: "listContexts", scope: read, summary: "List interpreters", add: typed(a.contextList)},
		{pattern: "DELETE " + inCtx, id: "closeContext", scope: exec, summary: "End an interpreter", add: quiet(a.closeContext)},
		{pattern: "POST " + inCtx + "/run", id: "runCell", scope: exec, summary: "Run code in an interpreter", errors: more(json, state), answers: eventsOr[CellReport](cellEvents), add: streamed(a.run)},
		{pattern: "POST " + inCtx + "/interrupt", id: "interruptContext", scope: exec, summary: "Interrupt what runs", errors: state, add: quiet(a.interrupt)},
		{pattern: "POST " + inCtx + "/restart", id: "restartContext", scope: exec, summary: "Begin anew with no variables", errors: state, add: typed(a.restart)},
		{pattern: "POST " + inBox + "/code", id: "runCode", scope: exec, summary: "Run code in the box's first interpreter of a language", errors: more(json, state), answers: eventsOr[CellReport](cellEvents), add: streamed(a.code)},

		{pattern: "GET " + inBox + "/ports/{port}", id: "openPort", scope: exec, summary: "Open a tunnel to a TCP port", errors: []int{426}, answers: answers{status: 101, about: "After 101 the connection is the port's: bytes both ways."}, add: streamed(a.port)},
	}
}

const cellEvents = "The events are start, stdout, stderr, result, raised, beat, end, and error when the stream breaks off. They are numbered: Last-Event-ID with the cell's id tells the rest."
