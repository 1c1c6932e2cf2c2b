// Package together lets requests race.
package together

import "sync"

// Run runs f(0) to f(n-1) at once, none before all are ready.
func Run(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			f(i)
		})
	}
	done.Wait()
}
