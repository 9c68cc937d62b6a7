"""What distbench needs to know of train_spirals.py."""

import train_spirals as script


class Spirals:
    loss_reduction = "sum"
    Trainer = script.Trainer

    def build(self, strategy):
        self.trained = self.Trainer(strategy)

    def replica_step(self, batch):
        return self.trained.train_step(batch)

    def variables(self):
        return self.trained.model.variables

    def optimizer(self):
        return self.trained.optimizer

    def dataset_fn(self, context):
        return script.make_dataset(context)
