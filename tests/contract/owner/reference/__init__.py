"""An owner beside the reference model of its verdicts."""
