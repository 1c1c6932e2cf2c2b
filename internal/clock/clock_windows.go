package clock

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Windows 10 and Server 2016 are the first to have it, and the first that Go
// runs on.
var queryInterruptTime = windows.NewLazySystemDLL("kernelbase.dll").NewProc("QueryInterruptTime")

func read() time.Duration {
	if err := queryInterruptTime.Find(); err != nil {
		panic(fmt.Sprintf("clock: %v", err))
	}
	var ticks uint64                                                   // of 100 ns
	_, _, _ = queryInterruptTime.Call(uintptr(unsafe.Pointer(&ticks))) // returns nothing
	return time.Duration(ticks) * 100 * time.Nanosecond
}
