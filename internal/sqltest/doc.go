// Package sqltest tests package fencesql against a real PostgreSQL and SQLite. It is a module
// of its own, so that their drivers are not among the library's dependencies.
package sqltest
