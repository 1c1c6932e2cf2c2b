// Package docs runs what the pages of the documentation show.
package docs
