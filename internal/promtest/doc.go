// Package promtest reads the metrics of the command with the parser of Prometheus, and judges them
// with its linter. It is a module of its own, so that neither is among the library's dependencies.
package promtest
