// Package shipped tests what goes along with the command: the units for systemd, the action for GitHub and the template
// for GitLab. It runs their scripts and command lines as they stand.
package shipped
