package wiring

// Awake is Params for an agent that keeps processors busy as one over a GPU's memory does (attend.go).
func Awake(p Params) Params {
	p.awake = true
	return p
}
