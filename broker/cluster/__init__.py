"""The cluster as its owner sees it: brokers in this process (`embedded`) or in processes of their own (`processes`)."""
