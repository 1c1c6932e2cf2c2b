// Package page tests the web page of leasehold serve in headless Chromium.
package page
