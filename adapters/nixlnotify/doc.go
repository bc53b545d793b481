// Package nixlnotify is the control channel over a transfer engine's notifications, for places where frames can't have a network port of their own.
//
// A frame is one notification that begins with ports.FrameMagic. Engine and channel share the engine's inbox and its connections, so New makes both from one engine: the
// Channel, and an Engine that the agent uses instead of the one below. Notifications that are no frames go on to the agent through Engine.RecvNotify.
//
// # Who drives the engine
//
// Notifications move only while the engine is driven, at both ends, and nothing but the reactor drives it: the channel has no descriptor to wait on. An agent with this channel
// therefore drives its engine when it is idle too, every 1 ms and after a second of rest every 5 ms (architecture.md, "The reactor").
//
// # Connections
//
// An engine has one connection to a peer, which serves transfers if the agent loaded the peer's metadata, and frames in any case. The channel loads a peer's endpoint, which is
// of the connection alone, only where the agent did not load more. Each side's Disconnect takes away what that side brought: when the agent lets go of a peer that
// the channel still answers, the engine forgets the peer's registrations and gets the endpoint again; frames that wait in the engine at that moment are lost.
//
// # Trust
//
// A notification's sender is a claim of its own (nixl.md, 4): everyone who can reach the engine can send frames in any name (protocol.md, 11). An endpoint from a frame is handed to the engine only with
// its checksum right, and the engine refuses one that is another peer's inside: a damaged or foreign one would make that peer's name unusable for good (nixl.md, 6).
package nixlnotify
