// Package pagetest tests the page of leasehold serve in a real Chromium without a screen. It is a module of its own, so
// that what drives the browser is not among the library's dependencies.
package pagetest
