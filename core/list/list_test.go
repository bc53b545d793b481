package list

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type element struct {
	n    int
	node Node[element]
}

// Two lists that share elements, against slices.
func TestListsAreSlices(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var lists [2]List[element]
		var model [2][]*element
		elements := make([]element, 8)
		for i := range elements {
			elements[i].n, elements[i].node.Of = i, &elements[i]
		}
		remove := func(e *element) {
			for i := range model {
				model[i] = slices.DeleteFunc(model[i], func(x *element) bool { return x == e })
			}
		}
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			e := &elements[rapid.IntRange(0, len(elements)-1).Draw(r, "element")]
			i := rapid.IntRange(0, 1).Draw(r, "list")
			switch rapid.SampledFrom([]string{"push", "unlink", "insert"}).Draw(r, "what") {
			case "push":
				remove(e)
				lists[i].Push(&e.node)
				model[i] = append(model[i], e)
			case "unlink":
				remove(e)
				e.node.Unlink()
			case "insert":
				remove(e)
				e.node.Unlink()
				at := rapid.IntRange(0, len(model[i])).Draw(r, "at")
				var behind *Node[element]
				if at > 0 {
					behind = &model[i][at-1].node
				}
				lists[i].Insert(&e.node, behind)
				model[i] = slices.Insert(model[i], at, e)
			}
			for i := range lists {
				require.True(r, slices.Equal(model[i], slices.Collect(lists[i].All)))
				var back []*element
				for n := lists[i].Last; n != nil; n = n.Prev {
					back = append(back, n.Of)
				}
				slices.Reverse(back)
				require.True(r, slices.Equal(model[i], back))
			}
		}
	})
}

// The present element may be taken out, and a loop may end early.
func TestAllWhileTakingOut(t *testing.T) {
	var l List[element]
	elements := make([]element, 4)
	for i := range elements {
		elements[i].n, elements[i].node.Of = i, &elements[i]
		l.Push(&elements[i].node)
	}
	for e := range l.All {
		if e.n == 3 {
			break
		}
		e.node.Unlink()
	}
	require.Same(t, &elements[3], l.First.Of)
	require.Same(t, l.First, l.Last)
}
