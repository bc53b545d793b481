// Package list has lists for the queues of the core.
package list

// List is a list whose elements bring their own node, so that putting one in and taking it out costs the same wherever it is, and allocates nothing. The zero value is empty.
type List[T any] struct {
	First, Last *Node[T] // nil when empty; only the methods change them
}

// Node is an element's place in a list; it is in at most one.
type Node[T any] struct {
	Of         *T // the element, which sets it once
	Prev, Next *Node[T]
	in         *List[T]
}

// Push puts an element at the end, out of whichever list it is in.
func (l *List[T]) Push(n *Node[T]) {
	n.Unlink()
	l.Insert(n, l.Last)
}

// Insert puts an element that is in no list behind another one, or first.
func (l *List[T]) Insert(n, behind *Node[T]) {
	n.in, n.Prev, n.Next = l, behind, l.First
	if behind != nil {
		n.Next, behind.Next = behind.Next, n
	} else {
		l.First = n
	}
	if n.Next != nil {
		n.Next.Prev = n
	} else {
		l.Last = n
	}
}

// Unlink takes an element out of the list it is in, if any.
func (n *Node[T]) Unlink() {
	if n.in == nil {
		return
	}
	if n.Prev != nil {
		n.Prev.Next = n.Next
	} else {
		n.in.First = n.Next
	}
	if n.Next != nil {
		n.Next.Prev = n.Prev
	} else {
		n.in.Last = n.Prev
	}
	n.in, n.Prev, n.Next = nil, nil, nil
}

// All goes through the elements in order. The present one may be taken out meanwhile.
func (l *List[T]) All(yield func(*T) bool) {
	for n := l.First; n != nil; {
		next := n.Next
		if !yield(n.Of) {
			return
		}
		n = next
	}
}
