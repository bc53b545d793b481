package simulation

// sharedWorlds are configurations in which agents send to each other through arenas of two zones: room for two chunks, one of each purpose (core/credit).
func sharedWorlds() []smallWorld {
	const both = "senders 0\nreceivers 0\nboth 2\n" + tiny + "arena 2\neager 0\nwindow 1\ncopies 1\n"
	add := func(from, to string) Op { return Op{Verb: OpAdd, Agent: from, Peer: to} }
	submit := func(n int, from, to string, pages int) Op {
		return Op{At: submitAt, Verb: OpSubmit, Request: n, Agent: from, Peer: to, Path: "bounce", Pages: pages, Layout: uint64(n)}
	}
	return []smallWorld{
		{0, "two agents both ways, one chunk each, room for two, every order", both, []Op{add("b1", "b2"), add("b2", "b1"), submit(1, "b1", "b2", 2), submit(2, "b2", "b1", 2)}, nil, 0},
	}
}
