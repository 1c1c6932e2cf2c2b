// Package metrics checks the command's metrics with the parser and the linter of Prometheus.
package metrics
