package frame

import "sync"

// Together runs the functions at the same time, each on a goroutine of its own,
// and returns when all have returned: the first error, in the order of the
// functions.
func Together(fs ...func() error) error {
	errs := make([]error, len(fs))
	var all sync.WaitGroup
	for i, f := range fs {
		all.Go(func() { errs[i] = f() })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
