"""Running one side or two: what a command or a public function does before it presents."""
