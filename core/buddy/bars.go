package buddy

// Bar keeps an aligned power-of-two span of whole granules from being used: nothing new is placed inside it, nor across it. Live blocks stay, and what they free inside it
// stays unused. Bars add up: a span barred twice needs two Unbars, and one inside another is barred by either. It panics when the span is not one.
func (a *Allocator) Bar(base, size uint64) {
	n, order := a.span(base, size)
	if a.nodes[n].bars++; a.nodes[n].bars == 0 {
		panic("buddy: a span is barred more than 65535 times")
	}
	a.pullUp(n, order)
}

// Unbar takes one Bar of exactly this span back. It panics when there is none.
func (a *Allocator) Unbar(base, size uint64) {
	n, order := a.span(base, size)
	if a.nodes[n].bars == 0 {
		panic("buddy: Unbar of a span that is not barred")
	}
	a.nodes[n].bars--
	a.pullUp(n, order)
}
