package sim

// String names the fate as logs and fault plans write it.
func (f FrameFate) String() string { return name(f, "arrives", "late", "lost", "twice", "refused") }

// String names the fate as logs and fault plans write it.
func (f TransferFate) String() string {
	return name(f, "succeeds", "late", "nothing-posted", "ends-partly", "fails", "fails-moves-late", "fails-moves-part", "fails-succeeds", "hangs", "hangs-moves-late", "post-fails-moves-late")
}

// String names the fate as logs and fault plans write it.
func (f CopyFate) String() string {
	return name(f, "succeeds", "late", "refused", "not-launched", "fails", "fails-runs-late", "hangs")
}
