package leasehold

// DefaultLayout is the layout of locks that name none.
func DefaultLayout() Layout { return Layout(defaultLayout) }

// SetDefaultLayout changes it, and returns what changes it back.
func SetDefaultLayout(l Layout) (undo func()) {
	before := defaultLayout
	defaultLayout = string(l)
	return func() { defaultLayout = before }
}
