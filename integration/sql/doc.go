// Package sql tests package fencesql against a real PostgreSQL and SQLite.
package sql
