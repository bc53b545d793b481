package transport

// list is a list whose elements bring their own node, so that putting one in and taking it out costs the same wherever it is, and allocates nothing. The zero value is empty.
type list[T any] struct{ first, last *node[T] }

// node is an element's place in a list; it is in at most one. The element sets of once.
type node[T any] struct {
	of         *T
	in         *list[T]
	prev, next *node[T]
}

// push puts an element at the end, out of whichever list it is in.
func (l *list[T]) push(n *node[T]) {
	n.unlink()
	l.insert(n, l.last)
}

// insert puts an element that is in no list behind another one, or first.
func (l *list[T]) insert(n, behind *node[T]) {
	n.in, n.prev, n.next = l, behind, l.first
	if behind != nil {
		n.next, behind.next = behind.next, n
	} else {
		l.first = n
	}
	if n.next != nil {
		n.next.prev = n
	} else {
		l.last = n
	}
}

// unlink takes an element out of the list it is in, if any.
func (n *node[T]) unlink() {
	if n.in == nil {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		n.in.first = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		n.in.last = n.prev
	}
	n.in, n.prev, n.next = nil, nil, nil
}

// all goes through the elements in order. The present one may be taken out meanwhile.
func (l *list[T]) all(yield func(*T) bool) {
	for n := l.first; n != nil; {
		next := n.next
		if !yield(n.of) {
			return
		}
		n = next
	}
}
