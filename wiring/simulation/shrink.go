package simulation

// shrinkRuns is how many runs a shrink makes at most.
const shrinkRuns = 4000

// Shrink reduces a record that breaks a rule to one that breaks the same rule with as few operations, faults, pages and agents as can be found. tried, unless nil, is called
// after each run. A record that breaks nothing comes back as nil.
func (r *Record) Shrink(o Options, tried func()) *Record {
	s := shrinker{options: o, tried: tried}
	first := r.Replay(o)
	if len(first.Violations) == 0 {
		return nil
	}
	s.rule = first.Violations[0].Rule
	best := *r
	for before := -1; before != best.size() && s.runs < shrinkRuns; {
		before = best.size()
		best.Choices = reduce(best.Choices, func(c []Choice) bool { return s.breaks(best.with(best.Ops, c)) })
		best.Ops = reduce(best.Ops, func(ops []Op) bool { return s.breaks(best.with(ops, best.Choices)) })
		s.simplify(&best)
		s.dropAgents(&best)
	}
	v := best.Replay(o).Violations[0]
	best.Rule, best.Text = v.Rule, v.Text
	return &best
}

type shrinker struct {
	options Options
	tried   func()
	rule    string
	runs    int
}

// breaks reports whether the record breaks the rule.
func (s *shrinker) breaks(r *Record) bool {
	if s.runs >= shrinkRuns {
		return false
	}
	s.runs++
	v := r.Replay(s.options).Violations
	if s.tried != nil {
		s.tried()
	}
	return len(v) > 0 && v[0].Rule == s.rule
}

// size is what shrinking makes smaller.
func (r *Record) size() int {
	n := len(r.Ops) + len(r.Choices) - len(r.Without)
	for _, o := range r.Ops {
		n += o.Pages
		if o.Delay != 0 {
			n++
		}
	}
	return n
}

func (r *Record) with(ops []Op, choices []Choice) *Record {
	c := *r
	c.Ops, c.Choices = ops, choices
	return &c
}

// simplify makes requests smaller and takes ready events and notifications away.
func (s *shrinker) simplify(r *Record) {
	for i := range r.Ops {
		for _, change := range []func(*Op){
			func(o *Op) { o.Pages = min(o.Pages, 1) },
			func(o *Op) { o.Pages = (o.Pages + 1) / 2 },
			func(o *Op) { o.Delay = 0 },
			func(o *Op) { o.Notify = false },
		} {
			ops := append([]Op(nil), r.Ops...)
			if change(&ops[i]); ops[i] != r.Ops[i] && s.breaks(r.with(ops, r.Choices)) {
				r.Ops = ops
			}
		}
	}
}

// dropAgents takes agents away that nothing is done with.
func (s *shrinker) dropAgents(r *Record) {
	used := map[string]bool{}
	for _, o := range r.Ops {
		used[o.Agent], used[o.Peer] = true, true
	}
	for _, name := range r.agents() {
		c := *r
		c.Without = append(append([]string(nil), r.Without...), name)
		if !used[name] && s.breaks(&c) {
			*r = c
		}
	}
}

// reduce removes as many elements as it can while what is left still fails: delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
// input", 2002), removing complements only.
func reduce[T any](list []T, fails func([]T) bool) []T {
	for part := (len(list) + 1) / 2; part > 0 && len(list) > 0; {
		removed := false
		for from := 0; from < len(list); {
			to := min(from+part, len(list))
			rest := append(append([]T(nil), list[:from]...), list[to:]...)
			if fails(rest) {
				list, removed = rest, true
			} else {
				from = to
			}
		}
		switch {
		case part > 1:
			part = (part + 1) / 2
		case !removed:
			part = 0
		}
	}
	return list
}
