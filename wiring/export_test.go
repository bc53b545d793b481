package wiring

// Awake is Params for an agent whose waiters stay awake for a moment, as over a GPU's memory (attend.go).
func Awake(p Params) Params {
	p.awake = true
	return p
}
