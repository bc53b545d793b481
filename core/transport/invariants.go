package transport

import "fmt"

// checkInvariants asserts what must hold after every turn, as far as it is cheap. A broken one is a bug of ours, and going on could cost somebody's data.
func (t *Transport) checkInvariants() {
	// Called in every turn, so the arguments of what holds must cost nothing.
	if t.liveFlows < 0 || t.regions < 0 || t.strangers < 0 {
		assert(false, "negative counts: flows %d, regions %d, strangers %d", t.liveFlows, t.regions, t.strangers)
	}
	if t.credits != nil && t.eagerUse > t.credits.Usable() {
		assert(false, "%d bytes of eager staging", t.eagerUse)
	}
	t.recount()
}

func assert(ok bool, format string, args ...any) {
	if !ok {
		panic("transport: " + fmt.Sprintf(format, args...))
	}
}
