package daemon

func (a *agent) watchMemory() {}
